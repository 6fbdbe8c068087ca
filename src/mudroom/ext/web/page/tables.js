// Tables of the core. Generated: do not edit.
//
// python -m mudroom.ext.web.server.page_tables > src/mudroom/ext/web/page/tables.js

/** Names of the sides of a conflict (core/merge/resolution_words.py). @type {Record<string, string>} */
export const SIDE_WORDS = {
  ours: "the project's",
  theirs: "the fork's",
  both: "both",
  base: "the original",
};

/** What was decided about a file, by `take` (core/merge/resolution_words.py). @type {Record<string, string>} */
export const TAKE_WORDS = {
  ours: "decided: the project's",
  theirs: "decided: the fork's",
  content: "decided: merged",
  delete: "decided: deleted",
};

/** Where a question was answered (core/text/answer_place.py). @type {Record<string, string>} */
export const ANSWERED = {
  nobody: "",
  queue: "",
  terminal: " on the terminal",
  page: " on the page",
  client: " by the client",
};

/** Headings of the list by risk, the costliest first (ext/order/core/risk.py). @type {Record<string, string>} */
export const RISK_WORDS = {
  conflict: "Conflicts",
  remark: "Your remarks, sent",
  later: "Runs later, more rights",
  weakened: "Weakened checks",
  code: "Code",
  settings: "Settings, dependencies",
  tests: "Tests",
  prose: "Prose",
  generated: "Generated, vendored",
  dull: "Changes nothing, proven",
};

/** Code points, for a character class (core/text/invisible_characters.py). */
export const INVISIBLE =
  "\\u{0}-\\u{8}\\u{a}-\\u{1f}\\u{7f}-\\u{a0}\\u{ad}-\\u{ad}\\u{34f}-\\u{34f}\\u{61c}-\\u{61c}\\u{115f}-\\u{1160}\\u{1680}-\\u{1680}" +
  "\\u{17b4}-\\u{17b5}\\u{180b}-\\u{180f}\\u{2000}-\\u{200f}\\u{2028}-\\u{202f}\\u{205f}-\\u{206f}\\u{2800}-\\u{2800}\\u{3164}-\\u{3164}\\u{d800}-\\u{f8ff}" +
  "\\u{fe00}-\\u{fe0f}\\u{feff}-\\u{feff}\\u{ffa0}-\\u{ffa0}\\u{fff0}-\\u{fffb}\\u{fffe}-\\u{ffff}\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}" +
  "\\u{f0000}-\\u{10ffff}";
