// The choice of changed blocks in one file: a set of their numbers, or null for all of them. Pure.

/** @typedef {Set<number> | null} Chosen */

/** @param {Chosen} chosen @param {number} block */
export const wants = (chosen, block) => chosen === null || chosen.has(block);

/**
 * @param {Chosen} chosen @param {readonly number[]} blocks
 * @returns {"all" | "some" | "none"}
 */
export function extent(chosen, blocks) {
  const count = blocks.filter((block) => wants(chosen, block)).length;
  return count === blocks.length ? "all" : count ? "some" : "none";
}

/**
 * The choice with some blocks added or removed.
 * @param {Chosen} chosen @param {readonly number[]} blocks @param {boolean} wanted
 * @param {number} total blocks of the whole file
 * @returns {Chosen}
 */
export function choose(chosen, blocks, wanted, total) {
  const next = new Set(chosen ?? Array.from({ length: total }, (_, block) => block));
  for (const block of blocks) {
    if (wanted) next.add(block);
    else next.delete(block);
  }
  return next.size >= total ? null : next;
}
