// Unsaved choices in conflicts, kept across views and reloads. Pure, apart from the storage that is passed in.
//
// 1. Drafts belong to one fork: a fork of the same name that was made at another time has none.
// 2. Each draft has the version of its conflict, and is not saved for another version.
// 3. Across a reload, as much is kept as fits, the most recent first. Of the others only their existence is kept.
// 4. Stored data may be anything; it is validated when it is read.

/** @typedef {import("./merge.js").Decisions} Decisions */
/** @typedef {{places: Decisions | null, edited: import("./result.js").Edited}} Draft what is chosen and not saved.
 *   `places`: null: what is decided, or nothing */
/** @typedef {{created: number, drafts: Map<string, Draft>, based: Map<string, string>, lost: Set<string>}} Unsaved of a fork, by
 *   file; `based`: on which versions it was chosen; `lost`: files of which there was more than could be kept */
/** @typedef {[id: string, versions: string] | [id: string, versions: string, places: [string, string, string | null, boolean][] | null, edited: [string, string] | null]} Packed */
/** @typedef {import("./pending.js").Memory} Memory */

const FORKS = 20;
const FILES = 200; // per fork
const LONGEST = 1_000_000; // characters: as in pending.js, which uses as much of the 5 MiB of a tab
const KEY = "drafts";
const TAKES = ["ours", "theirs", "both", "base", "written"];

/** @type {Draft} */
export const NOTHING = { places: null, edited: null };

/** @param {Draft | undefined} draft */
export const isDrafted = (draft) => Boolean(draft && (draft.places?.size || draft.edited));

/** @param {number} created @returns {Unsaved} */
const fresh = (created) => ({ created, drafts: new Map(), based: new Map(), lost: new Set() });

/** @param {Memory} memory @param {number} [longest] */
export function makeDrafts(memory, longest = LONGEST) {
  /** The most recently used is the last. @type {Map<string, Unsaved>} */
  const known = unpacked(memory.get(KEY));
  return {
    /** @param {string} fork @param {number} created when it was made @returns {Unsaved} */
    of(fork, created) {
      const found = known.get(fork);
      const now = found?.created === created ? found : fresh(created);
      known.delete(fork);
      known.set(fork, now);
      return now;
    },
    /** Write to the storage. */
    write() {
      const text = packed(known, longest);
      if (text !== (memory.get(KEY) ?? "") && !memory.set(KEY, text)) memory.set(KEY, packed(known, 0)); // the storage has less room than expected
    },
  };
}

/** The most recently edited is the last. @param {Unsaved} unsaved @param {string} id @param {Partial<Draft>} next */
export function put({ drafts, lost }, id, next) {
  const now = { ...NOTHING, ...drafts.get(id), ...next };
  drafts.delete(id);
  drafts.set(id, now);
  lost.delete(id);
}

/** @param {ReadonlyMap<string, Unsaved>} known @param {number} longest */
function packed(known, longest) {
  /** @type {any[]} */
  const found = [];
  let left = longest;
  for (const [fork, unsaved] of [...known].slice(-FORKS).reverse()) {
    /** @type {Packed[]} */
    const files = [...unsaved.lost].slice(-FILES).map((id) => [id, ""]);
    for (const [id, draft] of [...unsaved.drafts].filter(([, one]) => isDrafted(one)).slice(-FILES).reverse()) {
      const one = packedDraft(id, unsaved.based.get(id) ?? "", draft);
      const length = JSON.stringify(one).length;
      const fits = length <= left;
      if (fits) left -= length;
      files.unshift(fits ? one : [id, ""]);
    }
    if (files.length) found.unshift([fork, unsaved.created, files]);
  }
  return found.length ? JSON.stringify(found) : "";
}

/** @param {string} id @param {string} versions @param {Draft} draft @returns {Packed} */
const packedDraft = (id, versions, { places, edited }) => [
  id, versions, places && [...places].map(([key, { take, text, unseen }]) => [key, take, text, unseen === true]), edited && [edited.text, edited.begun],
];

/** @param {string | null} text @returns {Map<string, Unsaved>} */
function unpacked(text) {
  /** @type {Map<string, Unsaved>} */
  const found = new Map();
  try {
    for (const [fork, created, files] of JSON.parse(text || "[]")) {
      const unsaved = fresh(checked(created, "number"));
      for (const one of /** @type {Packed[]} */ (files)) unpack(unsaved, one);
      found.set(checked(fork, "string"), unsaved);
    }
  } catch {
    return new Map(); // written by another version of the page
  }
  return found;
}

/** @param {Unsaved} unsaved @param {Packed} packed_ */
function unpack(unsaved, [id, versions, places, edited]) {
  checked(id, "string");
  if (places === undefined || edited === undefined) return void unsaved.lost.add(id);
  unsaved.based.set(id, checked(versions, "string"));
  unsaved.drafts.set(id, {
    places: places && new Map(places.map(([key, take, text, unseen]) => {
      if (!TAKES.includes(take)) throw new TypeError(`a take that is none: ${take}`);
      return [checked(key, "string"), { take: /** @type {any} */ (take), text: text === null ? null : checked(text, "string"), unseen: unseen === true }];
    })),
    edited: edited && { text: checked(edited[0], "string"), begun: checked(edited[1], "string") },
  });
}

/** @template T @param {T} value @param {"string" | "number"} type @returns {T} */
function checked(value, type) {
  if (typeof value !== type) throw new TypeError(`a ${typeof value} where a ${type} should be`);
  return value;
}
