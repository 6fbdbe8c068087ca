// Remarks at the lines of a difference: the button at a line's number, and the threads and the editor below the line.
import { html } from "./html.js";
import { useKeys } from "./keys.js";
import { Thread, Writer } from "./remarks.js";
import { BLOCK, KIND, NEW, OLD } from "./rows.js";

/** @typedef {import("./rows.js").Line} Line */
/** @typedef {import("./remarks.js").FileRemarks} FileRemarks */
/** @typedef {{numbered: (line: Line) => any, below: (new_: Line | null, old: Line | null, columns: number) => any}} LineRemarks */

/** What a table of lines shows of remarks. @param {FileRemarks | null} remarks @returns {LineRemarks | null} */
export const lined = (remarks) => remarks && {
  numbered: (line) => numbered(line, remarks),
  below: (new_, old, columns) => below(remarks, new_, old, columns),
};

/** The number of a new line, as a button that begins a remark. @param {Line} line @param {FileRemarks} remarks */
function numbered(line, remarks) {
  const at = line[NEW];
  if (!at) return "";
  return html`<button type="button" class="remark-at" tabindex="-1" aria-label=${`Write a remark about line ${at}`} title="Write a remark (c)"
    onClick=${() => remarks.begin({ side: "new", first: at, last: at })}>${at}</button>`;
}

/**
 * The rows below a line: its threads, and the editor of a new remark.
 * @param {FileRemarks} remarks @param {Line | null} new_ @param {Line | null} old the removed line @param {number} columns
 */
function below(remarks, new_, old, columns) {
  const wide = (/** @type {string} */ key, /** @type {any} */ content) =>
    html`<tr class="thread-row" key=${key}><td colspan=${columns}>${content}</td></tr>`;
  const sides = /** @type {["new" | "old", number][]} */ ([["new", new_?.[NEW] ?? 0], ["old", old?.[OLD] ?? 0]]);
  return sides.filter(([, at]) => at > 0).flatMap(([side, at]) => [
    ...remarks.at(side, at).map((one) => wide(one.name, html`<${Thread} one=${one} act=${remarks.act} />`)),
    remarks.draft?.side === side && remarks.draft.last === at && wide("draft", html`<${Writer} draft=${remarks.draft} remarks=${remarks} />`),
  ]);
}

/** Whether there is a remark at one of the hunks' lines. @param {import("./rows.js").Hunk[]} hunks @param {FileRemarks | null} remarks */
export const isRemarked = (hunks, remarks) => remarks !== null && hunks.some((hunk) => hunk.lines.some((line) =>
  (line[NEW] > 0 && remarks.at("new", line[NEW]).length > 0) || (line[OLD] > 0 && remarks.at("old", line[OLD]).length > 0)));

/**
 * The key that begins a remark about the focused hunk's changed lines.
 * @param {{current: any}} root @param {import("./rows.js").Hunk[]} hunks @param {import("./remarks.js").FileRemarks | null} remarks
 */
export function useRemarkKey(root, hunks, remarks) {
  useKeys("diff", {
    remark: () => {
      const sections = [...root.current.querySelectorAll("section[data-hunk]")];
      const hunk = hunks[Math.max(0, sections.findIndex((one) => one.contains(document.activeElement)))];
      if (!remarks || !hunk) return false;
      const changed = hunk.lines.filter((line) => line[KIND] === "+");
      const block = changed.filter((line) => line[BLOCK] === changed[0][BLOCK]);
      const removed = hunk.lines.filter((line) => line[KIND] === "-");
      if (block.length) remarks.begin({ side: "new", first: block[0][NEW], last: block[block.length - 1][NEW] });
      else if (removed.length) remarks.begin({ side: "old", first: removed[0][OLD], last: removed[removed.length - 1][OLD] });
      else return false;
    },
  });
}
