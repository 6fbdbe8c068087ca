// Changed files as the lines of a tree, or of a flat list. Pure.

/** @typedef {{id: string, path: string, change: string, added: number, removed: number, size: number, flags: string[], source: string, type: string, hunks: boolean}} Row */
/**
 * @typedef {{key: string, name: string, level: number, position: number, among: number, row: Row | null, ids: string[],
 *   added: number, removed: number, open: boolean}} Item
 * One line: a file (`row`), or a directory with the `ids` of all files in it.
 */
/** @typedef {{name: string, path: string, directories: Map<string, Node>, rows: Row[], ids: string[], added: number, removed: number}} Node */

/** @param {string} name @param {string} path @returns {Node} */
const node = (name, path) => ({ name, path, directories: new Map(), rows: [], ids: [], added: 0, removed: 0 });

/** @param {Row[]} rows @returns {Node} */
export function grow(rows) {
  const root = node("", "");
  for (const row of rows) {
    let here = root;
    const parts = row.path.split("/");
    for (let at = 0; ; at++) {
      here.ids.push(row.id);
      here.added += row.added;
      here.removed += row.removed;
      if (at === parts.length - 1) break;
      let next = here.directories.get(parts[at]);
      if (!next) here.directories.set(parts[at], (next = node(parts[at], here.path + parts[at] + "/")));
      here = next;
    }
    here.rows.push(row);
  }
  return root;
}

/** A directory that holds one directory and nothing else is shown with it. @param {Node} one @returns {{name: string, last: Node}} */
function joined(one) {
  let name = one.name;
  while (!one.rows.length && one.directories.size === 1) {
    one = /** @type {Node} */ (one.directories.values().next().value);
    name += "/" + one.name;
  }
  return { name, last: one };
}

/** What is to be seen. @param {Node} root @param {ReadonlySet<string>} closed paths of directories @returns {Item[]} */
export function lines(root, closed) {
  /** @type {Item[]} */
  const found = [];
  const walk = (/** @type {Node} */ here, /** @type {number} */ level) => {
    const among = here.directories.size + here.rows.length;
    let position = 0;
    for (const one of here.directories.values()) {
      const { name, last } = joined(one);
      const open = !closed.has(last.path);
      found.push({ key: last.path, name, level, position: ++position, among, row: null, ids: last.ids, added: last.added, removed: last.removed, open });
      if (open) walk(last, level + 1);
    }
    for (const row of here.rows) {
      found.push({ key: row.id, name: row.path.slice(here.path.length), level, position: ++position, among, row, ids: [row.id], added: row.added, removed: row.removed, open: false });
    }
  };
  walk(root, 1);
  return found;
}

/** Without directories. @param {Row[]} rows @returns {Item[]} */
export const flat = (rows) => rows.map((row, at) => ({
  key: row.id, name: row.path, level: 1, position: at + 1, among: rows.length, row, ids: [row.id], added: row.added, removed: row.removed, open: false,
}));

/** Names for what rows are filtered by, in the order in which they are offered. @type {[string, string][]} */
export const FILTERS = [
  ["executes-later", "runs later"], ["protected", "protected"], ["secret", "secret"], ["conflict", "conflict"], ["ignored", "ignored"], ["binary", "binary"],
  ["large", "large"], ["mode", "mode"], ["added", "added"], ["modified", "modified"], ["deleted", "deleted"], ["renamed", "renamed"],
];

/** @param {Row} row @param {string} filter */
const fits = (row, filter) => row.change === filter || row.flags.includes(filter);

/** How many rows each filter leaves; only those that leave some, and not all. @param {Row[]} rows @returns {[string, string, number][]} */
export function offered(rows) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  const count = (/** @type {string} */ tag) => counts.set(tag, (counts.get(tag) ?? 0) + 1);
  for (const row of rows) {
    count(row.change);
    for (const flag of row.flags) count(flag);
  }
  return FILTERS.flatMap(([name, label]) => {
    const many = counts.get(name) ?? 0;
    const verb = ["added", "modified", "deleted", "renamed"].includes(name);
    return many && !(verb && many === rows.length) ? [/** @type {[string, string, number]} */ ([name, label, many])] : [];
  });
}

/** @param {Row[]} rows @param {string} text in names, in letters of any case @param {ReadonlySet<string>} filters any of them */
export function sifted(rows, text, filters) {
  const wanted = text.toLowerCase();
  if (!wanted && !filters.size) return rows;
  return rows.filter((row) => (!filters.size || [...filters].some((one) => fits(row, one))) &&
    (!wanted || row.path.toLowerCase().includes(wanted) || row.source.toLowerCase().includes(wanted)));
}
