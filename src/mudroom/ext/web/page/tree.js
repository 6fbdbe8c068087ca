// Changed files as the lines of a tree, or of a flat list. Pure.

/** @typedef {{id: string, path: string, change: string, added: number, removed: number, size: number, flags: string[], source: string, type: string, hunks: boolean, risk?: string, weight?: number, reasons?: string[]}} Row */
/**
 * @typedef {{key: string, name: string, level: number, position: number, among: number, row: Row | null, ids: string[],
 *   added: number, removed: number, open: boolean, isRoot?: boolean, heading?: boolean}} Item
 * One line: a file (`row`), or a directory with the `ids` of all files in it. `isRoot`: another project; `heading`: of a risk.
 */
/** @typedef {{path: string, label: string}} Root another project */
/** @typedef {{name: string, path: string, isRoot: boolean, above: Node | null, directories: Map<string, Node>, rows: Row[], ids: string[], added: number, removed: number}} Node */

/** @param {string} name @param {string} path @param {Node | null} above @param {boolean} [isRoot] another project @returns {Node} */
const node = (name, path, above, isRoot = false) => ({ name, path, isRoot, above, directories: new Map(), rows: [], ids: [], added: 0, removed: 0 });

/** The other project in which a row is; undefined: it is in the fork's own. @param {{path: string}} row @param {readonly Root[]} roots */
export const rootOf = (row, roots) => roots.filter((one) => row.path.startsWith(one.path + "/")).sort((one, other) => other.path.length - one.path.length)[0];

/** @param {Row[]} rows @param {readonly Root[]} [roots] @returns {Node} */
export function grow(rows, roots = []) {
  const root = node("", "", null);
  const known = new Map([["", root]]);
  for (const row of rows) {
    const path = row.path.slice(0, row.path.lastIndexOf("/") + 1); // most rows are in the directory of the row before
    let here = known.get(path);
    if (!here) known.set(path, (here = below(baseOf(root, row, roots), path)));
    here.rows.push(row);
    for (let one = /** @type {Node | null} */ (here); one; one = one.above) {
      one.ids.push(row.id);
      one.added += row.added;
      one.removed += row.removed;
    }
  }
  return root;
}

/** The directory of the project in which a row is. @param {Node} root @param {Row} row @param {readonly Root[]} roots @returns {Node} made, if it is not there */
function baseOf(root, row, roots) {
  const one = rootOf(row, roots);
  if (!one) return root;
  const key = one.path + "/"; // no directory of a project has a slash in its name
  if (!root.directories.has(key)) root.directories.set(key, node(one.label, key, root, true));
  return /** @type {Node} */ (root.directories.get(key));
}

/** @param {Node} here @param {string} path of a directory in it, with a slash at its end @returns {Node} made, if it is not there */
function below(here, path) {
  for (let from = here.path.length, to = path.indexOf("/", from); to >= 0; from = to + 1, to = path.indexOf("/", from)) {
    const name = path.slice(from, to);
    let next = here.directories.get(name);
    if (!next) here.directories.set(name, (next = node(name, path.slice(0, to + 1), here)));
    here = next;
  }
  return here;
}

/** A directory whose only entry is a directory is shown together with it. @param {Node} one @returns {{name: string, last: Node}} */
function joined(one) {
  let name = one.name;
  while (!one.isRoot && !one.rows.length && one.directories.size === 1) {
    one = /** @type {Node} */ (one.directories.values().next().value);
    name += "/" + one.name;
  }
  return { name, last: one };
}

/** @param {Row} row */
const ofRepository = (row) => row.flags.includes("repository") && !row.flags.includes("protected");

/**
 * The directories that hold nothing but a repository's own files, as `lines` joins them: they are closed at first, for
 * their commits are shown apart. None if there is nothing else.
 * @param {Node} root @returns {Set<string>}
 */
export function repositories(root) {
  /** @type {Set<string>} */
  const found = new Set();
  /** @param {Node} here @returns {boolean} whether there is nothing else in it */
  const walk = (here) => {
    const below = [...here.directories.values()].map((one) => {
      const { last } = joined(one);
      return { path: last.path, whole: walk(last) };
    });
    const whole = here.rows.every(ofRepository) && below.every((one) => one.whole);
    for (const one of below) if (one.whole && (!whole || here === root)) found.add(one.path);
    return whole;
  };
  return walk(root) ? new Set() : found;
}

/** The visible lines. @param {Node} root @param {ReadonlySet<string>} closed paths of directories @returns {Item[]} */
export function lines(root, closed) {
  /** @type {Item[]} */
  const found = [];
  const walk = (/** @type {Node} */ here, /** @type {number} */ level) => {
    const among = here.directories.size + here.rows.length;
    let position = 0;
    const directory = (/** @type {Node} */ one) => {
      const { name, last } = joined(one);
      const open = !closed.has(last.path);
      found.push({ key: last.path, name, level, position: ++position, among, row: null, ids: last.ids, added: last.added, removed: last.removed, open, isRoot: one.isRoot });
      if (open) walk(last, level + 1);
    };
    const directories = [...here.directories.values()];
    directories.filter((one) => !one.isRoot).forEach(directory);
    for (const row of here.rows) {
      found.push({ key: row.id, name: row.path.slice(here.path.length), level, position: ++position, among, row, ids: [row.id], added: row.added, removed: row.removed, open: false });
    }
    directories.filter((one) => one.isRoot).forEach(directory); // after all of the project
  };
  walk(root, 1);
  return found;
}

/** Without directories. @param {Row[]} rows @returns {Item[]} */
export const flat = (rows) => rows.map((row, at) => ({
  key: row.id, name: row.path, level: 1, position: at + 1, among: rows.length, row, ids: [row.id], added: row.added, removed: row.removed, open: false,
}));

/** Filters with their labels, in order. @type {[string, string][]} */
export const FILTERS = [
  ["executes-later", "runs later"], ["protected", "protected"], ["repository", "repository"], ["new-repository", "new repository"], ["work-tree", "work tree"], ["submodule", "submodule"], ["secret", "secret"], ["leads-outside", "leads outside"], ["reduced-mode", "fewer permissions"], ["owner", "other owner"], ["conflict", "conflict"], ["ignored", "ignored"], ["binary", "binary"],
  ["large", "large"], ["mode", "mode"], ["added", "added"], ["modified", "modified"], ["deleted", "deleted"], ["renamed", "renamed"],
];

/** @param {Row} row @param {string} filter */
const fits = (row, filter) => row.change === filter || row.flags.includes(filter);

/** How many rows each filter leaves; filters that leave none or all are left out. @param {Row[]} rows @returns {[string, string, number][]} */
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

/** Flags of what a reviewer looks at first, and last. */
const URGENT = new Set(["executes-later", "protected", "secret", "leads-outside", "reduced-mode"]);
const LEAST = new Set(["binary", "ignored", "large"]);

/** The file that a review opens: the first in conflict, else what is dangerous, else text. @param {Item[]} items */
export function firstOf(items) {
  const rank = (/** @type {string[]} */ flags) => (flags.includes("conflict") ? 0 : flags.some((one) => URGENT.has(one)) ? 1 : flags.some((one) => LEAST.has(one)) ? 3 : 2);
  const rows = items.flatMap((item) => (item.row ? [item.row] : []));
  const least = Math.min(...new Set(rows.map((row) => rank(row.flags))));
  return rows.find((row) => rank(row.flags) === least)?.id;
}
