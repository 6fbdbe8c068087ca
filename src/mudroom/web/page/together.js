// What does not come without another row: where a directory has become something else, or was that. Pure.
//
// 1. A directory that has become something else goes with all that was in it: deletions, and what has moved out of it.
//    What was in it can go alone.
// 2. What is a directory now, and was something else, comes with all that is in it: it lands by one rename.
//
// The rules are those of core/tree/dependent_rows.py, to which the server holds a request.

/** @typedef {{id: string, path: string, flags: string[], type: string, source: string}} Row */
/** @typedef {import("./picked.js").Picked} Picked */
/** @typedef {ReadonlyMap<string, ReadonlySet<string>>} Needs by the id of a row: those without which it does not come */

/** @type {Needs} */
const NONE = new Map();

/** @param {readonly Row[]} rows @returns {Needs} */
export function needs(rows) {
  const heads = new Map(rows.filter((row) => row.flags.includes("type")).map((row) => [row.path, row]));
  if (!heads.size) return NONE;
  /** @type {Map<string, Set<string>>} */
  const found = new Map();
  const add = (/** @type {Row} */ row, /** @type {Row} */ other) => void found.set(row.id, (found.get(row.id) ?? new Set()).add(other.id));
  for (const row of rows) {
    for (const head of above(row.path, heads)) {
      add(head, row);
      if (head.type === "directory") add(row, head);
    }
    for (const head of above(row.source, heads)) if (head.type !== "directory" && head !== row) add(head, row);
  }
  return found;
}

/** @param {string} path @param {Map<string, Row>} heads @returns {Row[]} */
function above(path, heads) {
  const found = [];
  for (let to = path.lastIndexOf("/"); to > 0; to = path.lastIndexOf("/", to - 1)) {
    const head = heads.get(path.slice(0, to));
    if (head) found.push(head);
  }
  return found;
}

/**
 * A choice that can be had as it is.
 * @param {Picked} picked @param {Needs} needed
 * @param {Picked | null} before what was chosen: what is not any more has been let go, and takes with it what needs it, and
 *   what is new brings what it needs. null: nothing is brought
 * @returns {Picked}
 */
export function gathered(picked, needed, before) {
  if (!needed.size) return picked;
  const next = new Map(picked);
  const gone = new Set();
  for (let changed = true; changed;) {
    changed = false;
    for (const [id, others] of needed) {
      const missing = next.has(id) ? [...others].filter((one) => !next.has(one)) : [];
      if (!missing.length) continue;
      changed = true;
      if (before === null || missing.some((one) => before.has(one) || gone.has(one))) {
        next.delete(id);
        gone.add(id);
      } else for (const one of missing) next.set(one, null);
    }
  }
  return next;
}
