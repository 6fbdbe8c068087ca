// What is chosen in conflicts and not saved, over a reload.
import assert from "node:assert/strict";
import { test } from "node:test";

import { isDrafted, makeDrafts, NOTHING, put } from "../../../../src/mudroom/ext/web/page/drafts.js";

/** A memory as a browser has it. */
function storage(most = Infinity) {
  /** @type {Map<string, string>} */
  const kept = new Map();
  return {
    kept,
    get: (/** @type {string} */ key) => kept.get(key) ?? null,
    set: (/** @type {string} */ key, /** @type {string} */ value) => value.length <= most && Boolean(kept.set(key, value)),
  };
}

const PLACES = new Map([["0 a", { take: "theirs", text: null, unseen: false }], ["0 b", { take: "ours", text: "by hand\n", unseen: true }]]);
const EDITED = { text: "whole\n", begun: "was\n" };

/** @returns {any} */
function reloaded(/** @type {(unsaved: any) => void} */ change, /** @type {any} */ memory = storage(), /** @type {number} */ longest = undefined) {
  const drafts = makeDrafts(memory, longest);
  change(drafts.of("p/f", 7));
  drafts.write();
  return makeDrafts(memory, longest).of("p/f", 7);
}

/** @param {any} unsaved @param {string} id @param {any} draft */
function work(unsaved, id, draft, versions = "v1") {
  put(unsaved, id, draft);
  unsaved.based.set(id, versions);
}

test("places and a whole result are there after a reload, with what they are about", () => {
  const found = reloaded((unsaved) => (work(unsaved, "x", { places: PLACES }), work(unsaved, "y", { edited: EDITED }, "v2")));
  assert.deepEqual(found.drafts.get("x"), { places: PLACES, edited: null });
  assert.deepEqual(found.drafts.get("y"), { places: null, edited: EDITED });
  assert.deepEqual([...found.based], [["x", "v1"], ["y", "v2"]]);
});

test("nothing is kept of what is saved or dropped", () => {
  const memory = storage();
  const found = reloaded((unsaved) => (work(unsaved, "x", { places: PLACES }), work(unsaved, "x", { places: null })), memory);
  assert.equal(found.drafts.size, 0);
  assert.equal(memory.get("drafts"), null);
  assert.equal(isDrafted({ ...NOTHING, places: new Map() }), false);
});

test("another fork of that name has none", () => {
  const memory = storage();
  reloaded((unsaved) => work(unsaved, "x", { places: PLACES }), memory);
  const drafts = makeDrafts(memory);
  assert.equal(drafts.of("p/f", 8).drafts.size, 0);
  drafts.write();
  assert.equal(memory.get("drafts"), "");
});

test("what does not fit is told of, and what was worked on last is kept", () => {
  const found = reloaded((unsaved) => {
    work(unsaved, "late", { edited: EDITED });
    work(unsaved, "large", { edited: { text: "x".repeat(500), begun: "" } });
    work(unsaved, "late", { edited: { ...EDITED, text: "later\n" } });
  }, storage(), 200);
  assert.deepEqual([[...found.drafts.keys()], [...found.lost]], [["late"], ["large"]]);
  const full = reloaded((unsaved) => work(unsaved, "x", { edited: { text: "x".repeat(500), begun: "" } }), storage(100));
  assert.deepEqual([[...full.drafts.keys()], [...full.lost]], [[], ["x"]]);
  put(full, "x", { edited: EDITED });
  assert.equal(full.lost.size, 0);
});

test("what comes back may be anything", () => {
  const wrong = [
    "{", "7", "[7]", '[["p/f","7",[]]]', '[["p/f",7,[[1,"v"]]]]', '[["p/f",7,[["x",1,null,null]]]]',
    '[["p/f",7,[["x","v",[["0 a","mine",null,false]],null]]]]', '[["p/f",7,[["x","v",null,["text"]]]]]', '[["p/f",7,[["x","v",[[1,"ours",null,false]],null]]]]',
  ];
  for (const text of wrong) {
    const memory = storage();
    memory.set("drafts", text);
    const found = makeDrafts(memory).of("p/f", 7);
    assert.deepEqual([found.drafts.size, found.based.size], [0, 0], text);
  }
});
