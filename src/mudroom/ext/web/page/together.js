// Rows that cannot be applied without other rows: where a directory has become something else, or was something else. Pure.
//
// The server says which rows a row needs (core/tree/dependent_rows.py), and refuses a request that lacks them. `gathered` does
// what `together` does there; tests/ext/web/test_page_tables.py compares the two.

/** @typedef {{id: string, needs?: string[]}} Row */
/** @typedef {import("./picked.js").Picked} Picked */
/** @typedef {ReadonlyMap<string, ReadonlySet<string>>} Needs by the id of a row: the rows without which it is not applied */

/** @type {Needs} */
const NONE = new Map();

/** The needs of these rows, among these rows: of a long list not all rows may be loaded. @param {readonly Row[]} rows @returns {Needs} */
export function needs(rows) {
  const dependent = rows.filter((row) => row.needs?.length);
  if (!dependent.length) return NONE;
  const loaded = new Set(rows.map((row) => row.id));
  /** @type {Map<string, Set<string>>} */
  const found = new Map();
  for (const row of dependent) {
    const others = (row.needs ?? []).filter((id) => loaded.has(id));
    if (others.length) found.set(row.id, new Set(others));
  }
  return found;
}

/**
 * The choice with all that its rows need.
 * @param {Picked} picked @param {Needs} needed
 * @param {Picked | null} before the choice before: a row that is no longer chosen takes the rows that need it with it, and a
 *   row that is new brings the rows that it needs. null: no rows are brought; rows that lack others are dropped
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
