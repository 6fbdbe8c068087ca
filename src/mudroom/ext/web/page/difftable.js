// Lines of a difference as tables: unified, or side by side.
//
// Each table is accessible to screen readers: a row has its line numbers and "added" or "removed" before the text. A
// long difference consists of several tables, made as they come near the viewport (near.js); the rows of a changed
// block are one group of rows.
import { code, Long } from "./code.js";
import { html, useMemo } from "./html.js";
import { Near } from "./near.js";
import { BLOCK, CUT, KIND, NEW, OLD, pairs, runs } from "./rows.js";
import { text } from "./source.js";
import { number } from "./wording.js";

export const AT_ONCE = 100; // lines of one table

/** @typedef {import("./rows.js").Line} Line */
/** @typedef {import("./source.js").Place} Place */
/** @typedef {{place: Place, split: boolean, returns: boolean, colours: import("./colour.js").Colours | null,
 *   only?: "old" | "new", remarks?: import("./remarkline.js").LineRemarks | null}} Manner how lines are shown; `split`: side by side; `only`: they are all of that side */

const NAMES = { "+": "added", "-": "removed", " ": "" };

/** @param {Line} line */
const sign = (line) => html`<span aria-hidden="true">${line[KIND]}</span>${NAMES[line[KIND]] &&
  html`<span class="hidden">${NAMES[line[KIND]]}</span>`}`;

/** @param {Line} line @param {Manner} manner @param {boolean} old */
function content(line, { place, returns, colours, only }, old) {
  const side = only ?? (old ? "old" : "new");
  const at = old ? line[OLD] : line[NEW];
  const tokens = colours?.[side]?.[at - 1];
  if (!line[CUT]) return code(line, returns, tokens);
  const more = (/** @type {number} */ column) => text(place, side, at, 1, column);
  return html`<${Long} line=${line} returns=${returns} tokens=${tokens} more=${more} />`;
}

/** @param {Line} line @param {Manner} manner */
const row = (line, manner) => html`<tr class=${NAMES[line[KIND]]}>
  <td class="number">${line[OLD] || ""}</td><td class="number">${manner.remarks?.numbered(line) ?? (line[NEW] || "")}</td><td class="sign">${sign(line)}</td>
  <td class="code">${content(line, manner, line[KIND] === "-")}</td>
</tr>${manner.remarks?.below(line[KIND] === "-" ? null : line, line[KIND] === "-" ? line : null, 4)}`;

/** @param {Line | null} line @param {Manner} manner @param {boolean} old */
function half(line, manner, old) {
  if (line === null) return html`<td class="number void"></td><td class="sign void"></td><td class="code void"></td>`;
  const name = NAMES[line[KIND]];
  return html`<td class=${"number " + name}>${old ? line[OLD] : manner.remarks?.numbered(line) ?? line[NEW]}</td><td class=${"sign " + name}>${sign(line)}</td>
    <td class=${"code " + name}>${content(line, manner, old)}</td>`;
}

const columns = (/** @type {boolean} */ split) => html`<colgroup>${(split ? "nscnsc" : "nnsc").split("").map((one) => html`<col class=${one} />`)}</colgroup>`;
const UNIFIED = html`<thead class="hidden"><tr><th scope="col">Old line</th><th scope="col">New line</th><th scope="col">Change</th><th scope="col">Text</th></tr></thead>`;
const BESIDE = html`<thead class="hidden"><tr><th scope="col">Old line</th><th scope="col">Change</th><th scope="col">Old text</th><th scope="col">New line</th><th scope="col">Change</th><th scope="col">New text</th></tr></thead>`;

/** @param {readonly Line[]} lines */
function range(lines) {
  const numbers = lines.map((line) => line[NEW] || line[OLD]);
  return `Lines ${numbers[0]} to ${numbers[numbers.length - 1]}`;
}

/**
 * One table.
 * @param {{groups: {block: number, begins: boolean, lines: Line[]}[], manner: Manner, off: string,
 *   pick?: (block: number) => any}} props
 * `off`: numbers of its blocks that are not chosen; `pick`: returns the element above a block
 */
function Table({ groups, manner, off, pick }) {
  return useMemo(() => {
    const not = new Set(off ? off.split(",").map(Number) : []);
    return html`<table class=${manner.split ? "lines beside" : "lines"} aria-label=${range(groups.flatMap((one) => one.lines))}>
      ${columns(manner.split)}${manner.split ? BESIDE : UNIFIED}
      ${groups.map(({ block, begins, lines }) => html`<tbody key=${lines[0][OLD] + ":" + lines[0][NEW]} class=${not.has(block) ? "off" : ""}>
        ${begins && block >= 0 && pick && html`<tr class="pick"><td colspan=${manner.split ? 6 : 4}>${pick(block)}</td></tr>`}
        ${manner.split
          ? pairs(lines).map((pair) => html`<tr>${half(pair.old, manner, true)}${half(pair.new_, manner, false)}</tr>${manner.remarks?.below(pair.new_, pair.old, 6)}`)
          : lines.map((line) => row(line, manner))}
      </tbody>`)}
    </table>`;
  }, [groups, manner, off, pick]);
}

/**
 * Any number of lines.
 * @param {{lines: readonly Line[], manner: Manner, off?: readonly number[], pick?: (block: number) => any, now?: boolean}} props
 * `now`: the first table is made at once
 */
export function Lines({ lines, manner, off = [], pick, now = false }) {
  const tables = useMemo(() => tabled(lines), [lines]);
  return tables.map((groups, at) => {
    const mine = groups.map((one) => one.block);
    const not = off.filter((block) => mine.includes(block)).join(",");
    const count = groups.reduce((sum, one) => sum + one.lines.length, 0);
    const make = () => html`<${Table} groups=${groups} manner=${manner} off=${not} pick=${pick} />`;
    return html`<${Near} key=${at} lines=${count} now=${now && at === 0} make=${make} />`;
  });
}

/** Tables of about AT_ONCE lines. @param {readonly Line[]} lines */
function tabled(lines) {
  /** @type {{block: number, begins: boolean, lines: Line[]}[][]} */
  const found = [];
  let count = AT_ONCE;
  for (const run of runs(lines, AT_ONCE)) {
    if (count + run.lines.length > AT_ONCE) {
      found.push([]);
      count = 0;
    }
    found[found.length - 1].push(run);
    count += run.lines.length;
  }
  return found;
}

/** The position of a hunk, in words. @param {import("./rows.js").Hunk} hunk */
export function whereabouts({ old_start, old_lines, new_start, new_lines }) {
  const range_ = (/** @type {number} */ start, /** @type {number} */ lines) =>
    lines === 0 ? "nothing" : lines === 1 ? `line ${number(start)}` : `lines ${number(start)}–${number(start + lines - 1)}`;
  if (!old_lines) return `new ${range_(new_start, new_lines)}`;
  if (!new_lines) return `removed ${range_(old_start, old_lines)}`;
  const [old, new_] = [range_(old_start, old_lines), range_(new_start, new_lines)];
  return old === new_ ? old : `${old} → ${old.startsWith("lines ") ? new_.replace("lines ", "") : new_}`;
}

/** Blocks of lines that are in them. @param {readonly Line[]} lines */
export const blocksOf = (lines) => [...new Set(lines.map((line) => line[BLOCK] ?? -1))].filter((block) => block >= 0);
