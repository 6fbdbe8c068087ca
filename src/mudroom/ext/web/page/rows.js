// The parts of a difference, in order: hunks, and the unchanged lines between them. Pure.
//
// Ranges are those of a unified diff: an empty range begins after the line that it names
// (https://www.gnu.org/software/diffutils/manual/html_node/Detailed-Unified.html).

/** @typedef {[kind: " " | "-" | "+", old: number, new_: number, text: string, block?: number, words?: [number, number][],
 *   odd?: [number, number][], cut?: number, ends?: boolean, until?: number]} Line as the API has it: an array */
export const KIND = 0, OLD = 1, NEW = 2, TEXT = 3, BLOCK = 4, WORDS = 5, ODD = 6, CUT = 7, ENDS = 8, UNTIL = 9;

/** @typedef {{blocks: number[], old_start: number, old_lines: number, new_start: number, new_lines: number,
 *   lines: Line[], section?: string, continued?: boolean, risk?: string, reasons?: string[]}} Hunk */
/** @typedef {{at: number, first: number, count: number, shift: number}} Gap `at`: the hunk after it; `first`: its first line
 *   on the new side; `shift`: old number minus new number */
/** @typedef {{top: number, bottom: number}} Opened how many lines of a gap are shown, from its top and its bottom */
/** @typedef {{old: Line | null, new_: Line | null}} Pair */

/** @param {number} start @param {number} lines */
const first = (start, lines) => (lines ? start : start + 1);
/** @param {number} start @param {number} lines */
const after = (start, lines) => start + (lines || 1);

/**
 * The gaps: unchanged lines that are not sent with the hunks. Empty gaps are left out.
 * @param {readonly Hunk[]} hunks all from the first on
 * @param {number | null} total lines of the new side; null: the end of the file is not known yet
 * @returns {Map<number, Gap>}
 */
export function gaps(hunks, total) {
  /** @type {Map<number, Gap>} */
  const found = new Map();
  let [old, new_] = [1, 1];
  hunks.forEach((hunk, at) => {
    const count = first(hunk.new_start, hunk.new_lines) - new_;
    if (count > 0) found.set(at, { at, first: new_, count, shift: old - new_ });
    old = after(hunk.old_start, hunk.old_lines);
    new_ = after(hunk.new_start, hunk.new_lines);
  });
  if (total !== null && total >= new_ && hunks.length) {
    found.set(hunks.length, { at: hunks.length, first: new_, count: total - new_ + 1, shift: old - new_ });
  }
  return found;
}

/**
 * A gap with more of it open.
 * @param {Gap} gap @param {Opened} opened @param {"top" | "bottom" | "all"} where @param {number} step
 * @returns {Opened}
 */
export function open(gap, opened, where, step) {
  const left = gap.count - opened.top - opened.bottom;
  const more = where === "all" ? left : Math.min(step, left);
  return where === "bottom" ? { ...opened, bottom: opened.bottom + more } : { ...opened, top: opened.top + more };
}

/**
 * The shown lines of a gap on the new side: two ranges of [first, count].
 * @param {Gap} gap @param {Opened} opened
 * @returns {[[number, number], [number, number]]}
 */
export const shown = (gap, opened) => [
  [gap.first, opened.top],
  [gap.first + gap.count - opened.bottom, opened.bottom],
];

/**
 * Lines side by side: unchanged lines in one row, removed lines beside added lines of the same block.
 * @param {readonly Line[]} lines
 * @returns {Pair[]}
 */
export function pairs(lines) {
  /** @type {Pair[]} */
  const found = [];
  /** @type {Line[]} */
  let removed = [];
  /** @type {Line[]} */
  let added = [];
  const flush = () => {
    for (let i = 0; i < Math.max(removed.length, added.length); i++) {
      found.push({ old: removed[i] ?? null, new_: added[i] ?? null });
    }
    [removed, added] = [[], []];
  };
  let block = -1;
  for (const line of lines) {
    if (line[KIND] === " " || (line[BLOCK] ?? -1) !== block) flush();
    block = line[BLOCK] ?? -1;
    if (line[KIND] === " ") found.push({ old: line, new_: line });
    else (line[KIND] === "-" ? removed : added).push(line);
  }
  flush();
  return found;
}

/**
 * Runs of lines: those of one block, or unchanged ones (block -1), none of more than `most` lines.
 * @param {readonly Line[]} lines @param {number} most
 * @returns {{block: number, begins: boolean, lines: Line[]}[]} `begins`: no run before is of the same block
 */
export function runs(lines, most) {
  /** @type {{block: number, begins: boolean, lines: Line[]}[]} */
  const found = [];
  let last = null;
  for (const line of lines) {
    const block = line[BLOCK] ?? -1;
    if (last === null || last.block !== block || last.lines.length >= most) {
      last = { block, begins: last === null || last.block !== block, lines: /** @type {Line[]} */ ([]) };
      found.push(last);
    }
    last.lines.push(line);
  }
  return found;
}

/** Whether a line ends with CR LF: its CR is an escape of the server's. @param {Line} line */
export function returned(line) {
  const odd = line[ODD] ?? [];
  return line[ENDS] !== false && !line[CUT] && odd.length > 0 && odd[odd.length - 1][1] === line[TEXT].length && line[TEXT].endsWith("\\r");
}

/**
 * How the ends of lines are to be shown: "all" lines end with CR LF (said once), "some" do (each is marked), or none.
 * @param {readonly Hunk[]} hunks
 * @returns {"all" | "some" | "none"}
 */
export function returns(hunks) {
  let [count, with_] = [0, 0];
  for (const hunk of hunks) {
    for (const line of hunk.lines) {
      if (line[ENDS] === false || line[CUT]) continue;
      count++;
      if (returned(line)) with_++;
    }
  }
  return with_ === 0 ? "none" : with_ === count ? "all" : "some";
}
