// Which files of a fork are wanted, and which changed blocks of them. Pure.
//
// 1. A file that is not in the map is not wanted; null: all of it, else the blocks that are, and whether its mode is.
// 2. At first everything is wanted but what is never applied without being named: what is protected, and repositories.
// 3. Of a repository all is wanted or nothing: a part of a commit is a broken one. What is protected in it is named by itself.
// 4. Who chooses blocks has not chosen a change of permissions: that has a tick of its own, or comes with all of the file.
// 5. What is protected, or runs later, is wanted as it is: when it is another one it is not wanted any more.

/** @typedef {{blocks: Set<number> | null, mode: boolean}} Part `blocks`: null: all of them */
/** @typedef {ReadonlyMap<string, Part | null>} Picked */
/** @typedef {{id: string, path: string, flags: string[], stamp: string, mode?: [string, string] | null}} Row */

/** Whether it is never applied without being named. @param {Pick<Row, "flags">} row */
export const withheld = (row) => row.flags.includes("protected") || row.flags.includes("repository");

/** Whether it is wanted as it is, or not at all. @param {Pick<Row, "flags">} row */
export const exact = ({ flags }) => !flags.includes("repository") && (flags.includes("protected") || flags.includes("executes-later"));

/** The repository that a row is a part of; empty: none. @param {Pick<Row, "flags" | "path">} row */
export const repositoryOf = ({ flags, path }) => (flags.includes("repository") ? path.slice(0, `/${path}/`.indexOf("/.git/") + 4) : "");

/**
 * What was wanted, with what belongs together: of a repository of which there is more or less than before all is wanted, or nothing.
 * @param {Picked} before @param {Picked} picked @param {readonly Row[]} rows @returns {Picked}
 */
export function together(before, picked, rows) {
  /** @type {Map<string, string[]>} */
  const found = new Map();
  for (const row of rows) {
    const repository = repositoryOf(row);
    if (!repository) continue;
    if (!found.has(repository)) found.set(repository, []);
    found.get(repository)?.push(row.id);
  }
  if (!found.size) return picked;
  const next = new Map(picked);
  for (const ids of found.values()) {
    const count = (/** @type {Picked} */ some) => ids.filter((id) => some.has(id)).length;
    const wanted = count(picked) > 0 && count(picked) >= count(before);
    for (const id of ids) wanted ? next.set(id, null) : next.delete(id);
  }
  return next;
}

/** The repositories that are wanted. @param {readonly Row[]} rows @param {Picked} picked @returns {string[]} */
export const repositories = (rows, picked) => [...new Set(rows.filter((row) => picked.has(row.id)).map(repositoryOf))].filter(Boolean);

/** @param {Row[]} rows @returns {Picked} */
export const initial = (rows) => new Map(rows.filter((row) => !withheld(row)).map((row) => [row.id, null]));

/**
 * What was chosen of other rows, for these: the same where a file was there before. One that is new is wanted only
 * where all was: who had chosen some did not choose it. Of one that is another now no hunks are chosen: their numbers mean something else;
 * nor is one of those that are wanted as they are.
 * Of `total` rows not all may be here yet: what is not among them is not gone, and its choice is kept until all are.
 * @param {Picked} picked @param {Row[]} before @param {Row[]} rows @param {number} [total]
 * @param {boolean} [all] whether all was wanted
 * @returns {Picked}
 */
export function carried(picked, before, rows, total = rows.length, all = everything(picked, initial(before))) {
  const known = new Map(before.map((row) => [row.id, row.stamp]));
  const next = new Map(picked);
  const there = new Set(rows.map((row) => row.id));
  if (rows.length >= total) for (const id of next.keys()) if (!there.has(id)) next.delete(id);
  for (const row of rows) {
    if (all && !known.has(row.id) && !withheld(row)) next.set(row.id, null);
    else if ((next.get(row.id) || exact(row)) && known.get(row.id) !== row.stamp) next.delete(row.id);
  }
  return next;
}

/**
 * Whether all was wanted that is wanted at first: of very many rows the first may all be withheld, and nothing is.
 * @param {Picked} picked @param {Picked} usual @returns {boolean}
 */
export const everything = (picked, usual) => !usual.size || extentOf(picked, [...usual.keys()]) === "all";

/** Which of these were wanted, and are not any more. @param {Picked} before @param {Picked} after @param {Row[]} rows */
export const dropped = (before, after, rows) => rows.filter((row) => before.has(row.id) && !after.has(row.id)).map((row) => row.id);

/**
 * Rows that a choice has been made among: these, and as long as not all `total` of them are here, those before.
 * @template {Row} T
 * @param {T[]} before @param {T[]} rows @param {number} total @returns {T[]}
 */
export function among(before, rows, total) {
  if (rows.length >= total) return rows;
  const there = new Set(rows.map((row) => row.id));
  return [...rows, ...before.filter((row) => !there.has(row.id))];
}

/** How many of these rows are wanted. @param {Row[]} rows @param {Picked} picked */
export const counted = (rows, picked) => rows.reduce((sum, row) => sum + (picked.has(row.id) ? 1 : 0), 0);

/** @param {Picked} picked @param {readonly string[]} ids @param {boolean} wanted @returns {Picked} */
export function want(picked, ids, wanted) {
  const next = new Map(picked);
  for (const id of ids) {
    if (wanted) next.set(id, null);
    else next.delete(id);
  }
  return next;
}

/**
 * With one tick for many: what is protected is not named by that, unless there is nothing else.
 * @param {Picked} picked @param {readonly string[]} ids @param {ReadonlySet<string>} guarded what is protected @returns {Picked}
 */
export function ticked(picked, ids, guarded) {
  const some = ids.filter((id) => !guarded.has(id));
  const meant = some.length ? some : ids;
  const all = extentOf(picked, meant) === "all";
  return want(picked, all ? ids : meant, !all);
}

/** @param {Picked} picked @param {Row} row @param {Set<number> | null} blocks none of them, nor the mode: not the file @returns {Picked} */
export const wantBlocks = (picked, row, blocks) => wantPart(picked, row, { blocks, mode: picked.get(row.id)?.mode ?? false });

/** @param {Picked} picked @param {Row} row @param {boolean} mode whether its permissions are to change, too @returns {Picked} */
export const wantMode = (picked, row, mode) => wantPart(picked, row, { blocks: blocksOf(picked, row.id), mode });

/** @param {Picked} picked @param {string} id @returns {Set<number> | null} those that are wanted; null: all */
export const blocksOf = (picked, id) => (picked.has(id) ? picked.get(id)?.blocks ?? null : NONE);

/** Whether its permissions are to change. @param {Picked} picked @param {string} id */
export const modeOf = (picked, id) => picked.has(id) && (picked.get(id)?.mode ?? true);

/** @type {Set<number>} */
const NONE = new Set();

/** @param {Picked} picked @param {Row} row @param {Part} part @returns {Picked} */
function wantPart(picked, row, { blocks, mode }) {
  const next = new Map(picked);
  const withMode = Boolean(row.mode) && mode;
  if (blocks === null && (withMode || !row.mode)) next.set(row.id, null);
  else if (blocks === null || blocks.size || withMode) next.set(row.id, { blocks, mode: withMode });
  else next.delete(row.id);
  return next;
}

/** @param {Picked} picked @param {readonly string[]} ids @returns {"all" | "some" | "none"} */
export function extentOf(picked, ids) {
  let all = true;
  let none = true;
  for (const id of ids) {
    const part = picked.get(id);
    if (part === undefined) all = false;
    else if (part === null) none = false;
    else return "some";
    if (!all && !none) return "some";
  }
  return none ? "none" : all ? "all" : "some";
}

/**
 * What the server is asked to apply; null: everything, which is said only if all `total` rows are here: nobody is to get
 * more than the number that was shown.
 * @param {Row[]} rows @param {Picked} picked @param {number} [total]
 * @returns {{id: string, blocks: number[] | null, mode: boolean}[] | null}
 */
export function request(rows, picked, total = rows.length) {
  const plain = rows.length === total && rows.every((row) => (withheld(row) ? !picked.has(row.id) : picked.get(row.id) === null));
  if (plain) return null;
  return rows.filter((row) => picked.has(row.id)).map((row) => {
    const blocks = blocksOf(picked, row.id);
    return { id: row.id, blocks: blocks && [...blocks].sort((a, b) => a - b), mode: !row.mode || modeOf(picked, row.id) };
  });
}
