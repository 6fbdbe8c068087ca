// What was chosen of forks and is not applied yet, with the rows that it was chosen among. Pure, but for the memory it is given.
//
// 1. It is about one fork: one of the same name that was made at another time has nothing chosen.
// 2. Nothing is kept of a choice that nobody has made: everything, as at first.
// 3. Over a reload only so much is kept as fits; what was chosen last goes first.
// 4. What comes back from the memory may be anything. It chooses among rows that are there, or nothing.

import { request, withheld } from "./picked.js";

/** @typedef {import("./picked.js").Picked} Picked */
/** @typedef {Pick<import("./picked.js").Row, "id" | "flags" | "stamp">} Row */
/** @typedef {{created: number, picked: Picked, rows: readonly Row[]}} Pending */
/** @typedef {{get: (key: string) => string | null, set: (key: string, value: string) => boolean}} Memory */
/** @typedef {[id: string, withheld: 0 | 1, stamp: string, part: 0 | 1 | [blocks: number[] | null, mode: boolean]]} Packed */

const FORKS = 20;
const LONGEST = 1_000_000; // characters; browsers keep 5 MiB of an origin for a tab (MDN, Storage quotas and eviction criteria: Web Storage)
const KEY = "picked";

/** @param {Memory} memory @param {number} [longest] */
export function makePending(memory, longest = LONGEST) {
  /** The last one chosen from is the last. @type {Map<string, Pending>} */
  const known = unpacked(memory.get(KEY));
  const forget = (/** @type {string} */ fork) => known.delete(fork);
  return {
    /** @param {string} fork @param {number} created when it was made @returns {Pending | null} */
    get(fork, created) {
      const found = known.get(fork);
      if (found?.created !== created) forget(fork);
      return known.get(fork) ?? null;
    },
    /** @param {string} fork @param {Pending} pending */
    set(fork, pending) {
      forget(fork);
      if (request(/** @type {any} */ (pending.rows), pending.picked) === null) return;
      known.set(fork, pending);
      for (const first of known.keys()) if (known.size > FORKS) forget(first);
    },
    forget,
    /** Bring it to the memory. */
    write() {
      const text = packed(known, longest);
      if (text !== (memory.get(KEY) ?? "")) memory.set(KEY, text);
    },
  };
}

/** @param {ReadonlyMap<string, Pending>} known @param {number} longest */
function packed(known, longest) {
  /** @type {string[]} */
  const found = [];
  let left = longest;
  for (const [fork, { created, picked, rows }] of [...known].reverse()) {
    const text = JSON.stringify([fork, created, rows.map((row) => packedRow(row, picked))]);
    if (text.length > left) continue;
    left -= text.length;
    found.unshift(text);
  }
  return found.length ? `[${found.join()}]` : "";
}

/** @param {Row} row @param {Picked} picked @returns {Packed} */
function packedRow({ id, flags, stamp }, picked) {
  const part = picked.get(id);
  const is = withheld({ flags }) ? 1 : 0;
  if (!part) return [id, is, "", part === null ? 1 : 0]; // of what is chosen as a whole no state matters
  return [id, is, stamp, [part.blocks && [...part.blocks], part.mode]];
}

/** @param {string | null} text @returns {Map<string, Pending>} */
function unpacked(text) {
  /** @type {Map<string, Pending>} */
  const found = new Map();
  try {
    for (const [fork, created, rows] of JSON.parse(text || "[]")) found.set(checked(fork, "string"), { created: checked(created, "number"), ...unpackedRows(rows) });
  } catch {
    return new Map(); // another version of the page has written it
  }
  return found;
}

/** @param {Packed[]} packed_ */
function unpackedRows(packed_) {
  const rows = packed_.map(([id, is, stamp]) => ({ id: checked(id, "string"), flags: is ? ["protected"] : [], stamp: checked(stamp, "string") }));
  /** @type {Map<string, import("./picked.js").Part | null>} */
  const picked = new Map();
  for (const [id, , , part] of packed_) if (part) picked.set(id, part === 1 ? null : { blocks: part[0] && new Set(part[0].map((block) => checked(block, "number"))), mode: part[1] === true });
  return { rows, picked };
}

/** @template T @param {T} value @param {"string" | "number"} type @returns {T} */
function checked(value, type) {
  if (typeof value !== type) throw new TypeError(`a ${typeof value} where a ${type} should be`);
  return value;
}
