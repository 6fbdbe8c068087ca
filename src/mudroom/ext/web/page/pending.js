// Choices of forks that are not applied yet, with the rows they were made among. Pure, apart from the storage that is
// passed in.
//
// 1. A choice belongs to one fork: a fork of the same name that was made at another time has none.
// 2. The initial choice is not stored.
// 3. Across a reload, as much is kept as fits, the most recent first. Of a choice that does not fit, its existence is
//    kept: then no row is chosen, and the page says why.
// 4. Stored data may be anything; it is validated when it is read.

import { exact, request, withheld } from "./picked.js";

/** @typedef {import("./picked.js").Picked} Picked */
/** @typedef {Pick<import("./picked.js").Row, "id" | "flags" | "stamp">} Row */
/** @typedef {{created: number, picked: Picked, rows: readonly Row[], lost?: boolean}} Pending `lost`: it could not be kept, and nothing is chosen */
/** @typedef {{get: (key: string) => string | null, set: (key: string, value: string) => boolean}} Memory */
/** @typedef {1 | [blocks: number[] | null, mode: boolean]} Part 1: all of it */
/** @typedef {[at: number, stamp: string, part: Part][]} More of rows that are chosen in one state alone */
/**
 * @typedef {[fork: string, created: number] | [fork: string, created: number, ids: (number | string)[], ticks: string, more: More]} Packed
 *   `ids`: of each row how much of it is as in the one before, and the rest; `ticks`: of each row a digit, CHOSEN + WITHHELD
 */

const CHOSEN = 1;
const WITHHELD = 2;
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
      const old = [...known].slice(0, -FORKS);
      for (const [name, { created }] of old) known.set(name, lost(created));
    },
    forget,
    /** Write to the storage. */
    write() {
      const text = packed(known, longest);
      if (text !== (memory.get(KEY) ?? "") && !memory.set(KEY, text)) memory.set(KEY, packed(known, 0)); // the storage has less room than expected
    },
  };
}

/** @param {number} created @returns {Pending} */
const lost = (created) => ({ created, picked: new Map(), rows: [], lost: true });

/** @param {ReadonlyMap<string, Pending>} known @param {number} longest */
function packed(known, longest) {
  /** @type {string[]} */
  const found = [];
  let left = longest;
  for (const [fork, pending] of [...known].reverse()) {
    const text = JSON.stringify(packedFork(fork, pending));
    const fits = text.length <= left;
    if (fits) left -= text.length;
    found.unshift(fits ? text : JSON.stringify([fork, pending.created]));
  }
  return found.length ? `[${found.join()}]` : "";
}

/** @param {string} fork @param {Pending} pending @returns {Packed} */
function packedFork(fork, { created, picked, rows, lost: isLost }) {
  if (isLost) return [fork, created];
  /** @type {(number | string)[]} */
  const ids = [];
  /** @type {More} */
  const more = [];
  let [ticks, last] = ["", ""];
  rows.forEach((row, at) => {
    const part = picked.get(row.id);
    const same = shared(last, row.id);
    ids.push(same, row.id.slice(same));
    last = row.id;
    ticks += (part === undefined ? 0 : CHOSEN) + (withheld(row) ? WITHHELD : 0);
    if (part) more.push([at, row.stamp, [part.blocks && [...part.blocks], part.mode]]);
    else if (part === null && exact(row)) more.push([at, row.stamp, 1]); // for other rows that are chosen as a whole the state does not matter
  });
  return [fork, created, ids, ticks, more];
}

/** How many letters are the same at the beginning of both. @param {string} one @param {string} other */
function shared(one, other) {
  let at = 0;
  while (at < one.length && one.charCodeAt(at) === other.charCodeAt(at)) at++;
  return at;
}

/** @param {string | null} text @returns {Map<string, Pending>} */
function unpacked(text) {
  /** @type {Map<string, Pending>} */
  const found = new Map();
  try {
    for (const one of /** @type {Packed[]} */ (JSON.parse(text || "[]"))) found.set(checked(one[0], "string"), unpackedFork(one));
  } catch {
    return new Map(); // written by another version of the page
  }
  return found;
}

/** @param {Packed} packed_ @returns {Pending} */
function unpackedFork([, created, names, ticks, more]) {
  checked(created, "number");
  if (names === undefined) return lost(created);
  const ids = names.values(); // a number and a string in turn
  const next = () => /** @type {any} */ (ids.next().value);
  /** @type {Map<string, import("./picked.js").Part | null>} */
  const picked = new Map();
  /** @type {Row[]} */
  const rows = [];
  let id = "";
  for (const digit of /** @type {string} */ (checked(ticks, "string"))) {
    id = id.slice(0, checked(next(), "number")) + checked(next(), "string");
    if (Number(digit) & CHOSEN) picked.set(id, null);
    rows.push({ id, flags: Number(digit) & WITHHELD ? ["protected"] : [], stamp: "" });
  }
  for (const [at, stamp, part] of more ?? []) {
    const row = rows[at];
    row.stamp = checked(stamp, "string");
    row.flags.push("executes-later"); // it may be: so it is stored with its state again
    if (part !== 1) picked.set(row.id, { blocks: part[0] && new Set(part[0].map((block) => checked(block, "number"))), mode: part[1] === true });
  }
  return { created, rows, picked };
}

/** @template T @param {T} value @param {"string" | "number"} type @returns {T} */
function checked(value, type) {
  if (typeof value !== type) throw new TypeError(`a ${typeof value} where a ${type} should be`);
  return value;
}
