// A line as pieces to draw: syntax colours, differing words, and characters that are invisible. Pure.
//
// 1. A character that is invisible, or changes the reading order, is drawn as a chip with a name. The server has
//    escaped most of them and says where; this module names them, and searches the text for others.
// 2. Spans count UTF-16 units, as the DOM does.
import { INVISIBLE } from "./tables.js";

/** @typedef {[number, number]} Span */
/** @typedef {{start: number, end: number, kind: string}} Token */
/** @typedef {{text: string, kind: string, word: boolean, odd: string}} Piece `odd`: what a chip is; empty: plain text */

const CONTROLS = ("NUL SOH STX ETX EOT ENQ ACK BEL BS TAB LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB " +
  "ESC FS GS RS US").split(" ");
const TURNS = "changes the direction in which text is shown";
const UNSEEN = "is not visible";
/** Characters with names: code point, label, description. Unicode 16, UAX #9 and NamesList.txt. */
const NAMED = new Map(/** @type {[number, [string, string]][]} */ ([
  [0x20, ["SP", "a space"]], [0x7f, ["DEL", "control character: delete"]], [0x85, ["NEL", "next line"]],
  [0xa0, ["NBSP", "a space at which no line breaks"]], [0xad, ["SHY", "soft hyphen: " + UNSEEN]],
  [0x61c, ["ALM", "Arabic letter mark: " + TURNS]], [0x200b, ["ZWSP", "zero width space: " + UNSEEN]],
  [0x200c, ["ZWNJ", "zero width non-joiner: " + UNSEEN]], [0x200d, ["ZWJ", "zero width joiner: " + UNSEEN]],
  [0x200e, ["LRM", "left-to-right mark: " + TURNS]], [0x200f, ["RLM", "right-to-left mark: " + TURNS]],
  [0x2028, ["LS", "line separator"]], [0x2029, ["PS", "paragraph separator"]],
  [0x202a, ["LRE", "left-to-right embedding: " + TURNS]], [0x202b, ["RLE", "right-to-left embedding: " + TURNS]],
  [0x202c, ["PDF", "pop directional formatting: " + TURNS]], [0x202d, ["LRO", "left-to-right override: " + TURNS]],
  [0x202e, ["RLO", "right-to-left override: " + TURNS]], [0x2060, ["WJ", "word joiner: " + UNSEEN]],
  [0x2066, ["LRI", "left-to-right isolate: " + TURNS]], [0x2067, ["RLI", "right-to-left isolate: " + TURNS]],
  [0x2068, ["FSI", "first strong isolate: " + TURNS]], [0x2069, ["PDI", "pop directional isolate: " + TURNS]],
  [0xfeff, ["BOM", "byte order mark: " + UNSEEN]], [0x115f, ["FILL", "Hangul filler: " + UNSEEN]],
  [0x1160, ["FILL", "Hangul filler: " + UNSEEN]], [0x3164, ["FILL", "Hangul filler: " + UNSEEN]],
  [0xffa0, ["FILL", "Hangul filler: " + UNSEEN]], [0x2800, ["BLANK", "braille pattern without a dot: " + UNSEEN]],
  [0x3000, ["IDSP", "ideographic space"]], [0x34f, ["CGJ", "combining grapheme joiner: " + UNSEEN]],
]));
/* eslint-disable no-control-regex */
/** The characters of the table, format characters, and code points that this browser's Unicode does not assign. */
const SUSPECT = new RegExp(`[${INVISIBLE}\\p{Cf}\\p{Cn}]`, "gu");
const PICTURE = /^(?:\p{Extended_Pictographic}|\p{Emoji_Modifier}|\ufe0f)/u;
const PICTURE_NEXT = /^\p{Extended_Pictographic}/u;
const EMOJI = /^\p{Emoji}/u;

const point = (/** @type {number} */ code) => "U+" + code.toString(16).toUpperCase().padStart(4, "0");

/**
 * The label and the description of a character's chip; null: no chip.
 * @param {number} code
 * @returns {[string, string] | null}
 */
export function chip(code) {
  if (code === 9) return null;
  const named = NAMED.get(code);
  if (named) return [named[0], `${point(code)}, ${named[1]}`];
  if (code < 32) return [CONTROLS[code], `${point(code)}, a control character`];
  if (code < 0xa0) return [point(code), `${point(code)}, a control character`];
  if (code >= 0xe0020 && code < 0xe007f) {
    const meant = String.fromCharCode(code - 0xe0000);
    return [`TAG ${meant}`, `${point(code)}, a tag character: ${UNSEEN}, and a program may read it as "${meant}"`];
  }
  if ((code >= 0xfe00 && code <= 0xfe0f) || (code >= 0xe0100 && code <= 0xe01ef)) {
    return ["VS", `${point(code)}, a variation selector: ${UNSEEN}`];
  }
  return [point(code), `${point(code)}, a character without a shape of its own`];
}

/** Whether the character at `at` only joins the parts of an emoji. @param {string} text @param {number} at */
function joins(text, at) {
  const code = text.charCodeAt(at);
  if (code !== 0xfe0f && code !== 0x200d) return false;
  const before = [...text.slice(Math.max(0, at - 2), at)].pop() ?? "";
  return code === 0xfe0f ? EMOJI.test(before) : PICTURE.test(before) && PICTURE_NEXT.test(text.slice(at + 1, at + 3));
}

/**
 * Characters of a text that are drawn as chips.
 * @param {string} text
 * @returns {{start: number, end: number, text: string, odd: string}[]}
 */
export function chips(text) {
  const found = [];
  for (const match of text.matchAll(SUSPECT)) {
    const shown = chip(/** @type {number} */ (match[0].codePointAt(0)));
    if (shown === null || joins(text, match.index)) continue;
    found.push({ start: match.index, end: match.index + match[0].length, text: shown[0], odd: shown[1] });
  }
  return found;
}

/** Spans, cut to the text. @param {string} text @param {readonly Span[]} spans */
const within = (text, spans) => spans.map(([start, end]) => /** @type {Span} */ ([start, Math.min(end, text.length)])).filter(([start, end]) => start < end);

/**
 * The label and the description of an escape of the server.
 * @param {string} text
 * @returns {[string, string]}
 */
export function escape(text) {
  if (text === "\\t") return ["TAB", `${point(9)}, a tab`];
  if (text === "\\r" || text === "\\n") return /** @type {[string, string]} */ (chip(text === "\\r" ? 13 : 10));
  const found = /^\\(?:x([0-9a-f]{2})|u\{([0-9a-f]+)\})$/.exec(text);
  const code = found ? parseInt(found[1] ?? found[2], 16) : NaN;
  const known = code <= 0x10ffff ? chip(code) : null;
  if (!found || !known) return [text, `written as ${text}: it cannot be shown as it is`];
  if (!found[1] || code < 0x80) return known;
  return [text, `a byte that is no text here: ${text}; or ${known[1]}`];
}

/** @param {string} text @param {Span} span */
function escaped(text, [start, end]) {
  const [shown, odd] = escape(text.slice(start, end));
  return { start, end, text: shown, odd };
}

/**
 * A line as pieces, in order.
 * @param {string} text
 * @param {readonly Span[]} words in order @param {readonly Span[]} odd where escapes are, in order
 * @param {readonly Token[]} tokens in order, not overlapping
 * @returns {Piece[]}
 */
export function pieces(text, words = [], odd = [], tokens = []) {
  const differ = within(text, words);
  const strange = [...within(text, odd).map((span) => escaped(text, span)), ...chips(text)].sort((a, b) => a.start - b.start);
  if (!differ.length && !strange.length && !tokens.length) return text ? [{ text, kind: "", word: false, odd: "" }] : [];
  const cuts = new Set([0, text.length]);
  for (const [start, end] of differ) cuts.add(start).add(end);
  for (const { start, end } of strange) cuts.add(start).add(end);
  for (const { start, end } of tokens) cuts.add(Math.min(start, text.length)).add(Math.min(end, text.length));
  const edges = [...cuts].sort((a, b) => a - b);
  /** @type {Piece[]} */
  const found = [];
  let [w, s, t, until] = [0, 0, 0, 0];
  for (let i = 0; i + 1 < edges.length; i++) {
    const [start, end] = [edges[i], edges[i + 1]];
    if (start < until) continue; // within a chip, which is not cut
    while (w < differ.length && differ[w][1] <= start) w++;
    while (s < strange.length && strange[s].start < start) s++;
    while (t < tokens.length && tokens[t].end <= start) t++;
    const word = w < differ.length && differ[w][0] <= start;
    const kind = t < tokens.length && tokens[t].start <= start ? tokens[t].kind : "";
    if (s < strange.length && strange[s].start === start) {
      found.push({ text: strange[s].text, kind: "", word, odd: strange[s].odd });
      until = strange[s].end;
    } else found.push({ text: text.slice(start, end), kind, word, odd: "" });
  }
  return found;
}

const WRITTEN = /\\\\|\\(?:x[0-9a-f]{2}|u\{[0-9a-f]+\}|[ntr])/g;

/**
 * A path as the server writes it (`core/tree/path.show_path`), as pieces. Backslashes of the name are doubled, so every
 * escape is the server's.
 * @param {string} path
 * @returns {Piece[]}
 */
export function nameParts(path) {
  if (!path.includes("\\")) return pieces(path);
  const escapes = [...path.matchAll(WRITTEN)].filter(([found]) => found !== "\\\\");
  return pieces(path, [], escapes.map((found) => /** @type {Span} */ ([found.index, found.index + found[0].length])));
}
