// Which files of a fork are chosen, and which of their changed blocks. Pure.
//
// 1. A file that is not in the map is not chosen. null: all of it; otherwise the chosen blocks, and whether its mode
//    is.
// 2. At first all rows are chosen, except those that have to be named: protected paths and repositories.
// 3. A repository is chosen as a whole or not at all: a part of a commit is a broken one. Its protected files are
//    chosen one by one. A repository that the fork made is chosen like other files, as a whole.
// 4. Choosing blocks does not choose a change of permissions: that has a box of its own, or comes with the whole file.
// 5. Protected files, and files that run later, are chosen in their shown state: when they change, they are no longer
//    chosen.

/** @typedef {{blocks: Set<number> | null, mode: boolean}} Part `blocks`: null: all of them */
/** @typedef {ReadonlyMap<string, Part | null>} Picked */
/** @typedef {{id: string, path: string, flags: string[], stamp: string, mode?: [string, string] | null}} Row */

/** Whether it is applied only when it is named. @param {Pick<Row, "flags">} row */
export const withheld = (row) => row.flags.includes("protected") || row.flags.includes("repository");

/** Whether the choice is bound to its shown state. @param {Pick<Row, "flags">} row */
export const exact = ({ flags }) => !flags.includes("repository") && (flags.includes("protected") || flags.includes("executes-later") || flags.includes("leads-outside"));

/** The repository that a row is a part of; empty: none. @param {Pick<Row, "flags" | "path">} row */
export const repositoryOf = ({ flags, path }) => (flags.includes("repository") ? path.slice(0, `/${path}/`.indexOf("/.git/") + 4) : "");

/** The repository that is chosen together with a row; empty: none. @param {Pick<Row, "flags" | "path">} row */
const unitOf = (row) => {
  const end = row.flags.includes("new-repository") ? `/${row.path}/`.indexOf("/.git/") + 4 : 0;
  return end > 3 ? row.path.slice(0, end) : repositoryOf(row);
};

/**
 * The choice with repositories completed: a repository that is chosen in part becomes chosen, or not chosen, as a whole.
 * @param {Picked} before @param {Picked} picked @param {readonly Row[]} rows @returns {Picked}
 */
export function together(before, picked, rows) {
  /** @type {Map<string, string[]>} */
  const found = new Map();
  for (const row of rows) {
    const repository = unitOf(row);
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

/** The chosen repositories. @param {readonly Row[]} rows @param {Picked} picked @returns {string[]} */
export const repositories = (rows, picked) => [...new Set(rows.filter((row) => picked.has(row.id)).map(repositoryOf))].filter(Boolean);

/** @param {Row[]} rows @returns {Picked} */
export const initial = (rows) => new Map(rows.filter((row) => !withheld(row)).map((row) => [row.id, null]));

/**
 * The choice carried over to other rows: the same for files that were there before. A new file is chosen only if all rows
 * were. Of a changed file a choice of hunks is dropped, because their numbers differ; so is a choice that is bound to a state.
 * If not all `total` rows are loaded yet, choices of other rows are kept until they are.
 * @param {Picked} picked @param {Row[]} before @param {Row[]} rows @param {number} [total]
 * @param {boolean} [all] whether all rows were chosen
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
 * Whether the choice has all rows of the initial one, which is empty if all loaded rows have to be named.
 * @param {Picked} picked @param {Picked} usual @returns {boolean}
 */
export const everything = (picked, usual) => !usual.size || extentOf(picked, [...usual.keys()]) === "all";

/** The rows that are no longer chosen. @param {Picked} before @param {Picked} after @param {Row[]} rows */
export const dropped = (before, after, rows) => rows.filter((row) => before.has(row.id) && !after.has(row.id)).map((row) => row.id);

/**
 * The rows that a choice is made among: these, and until all `total` are loaded, also those before.
 * @template {Row} T
 * @param {T[]} before @param {T[]} rows @param {number} total @returns {T[]}
 */
export function among(before, rows, total) {
  if (rows.length >= total) return rows;
  const there = new Set(rows.map((row) => row.id));
  return [...rows, ...before.filter((row) => !there.has(row.id))];
}

/** How many of these rows are chosen. @param {Row[]} rows @param {Picked} picked */
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
 * Toggle many rows at once: protected rows are not chosen by that, unless there are no others.
 * @param {Picked} picked @param {readonly string[]} ids @param {ReadonlySet<string>} guarded protected rows @returns {Picked}
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
 * The request to apply; null: all changes, sent only if all `total` rows are loaded, so that never more is applied than
 * was shown.
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
