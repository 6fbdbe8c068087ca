// Rows that go together where a directory has become something else, or the other way.
import assert from "node:assert/strict";
import { test } from "node:test";

import { initial, want } from "../../../../src/mudroom/ext/web/page/picked.js";
import { gathered, needs } from "../../../../src/mudroom/ext/web/page/together.js";

const row = (path, needs = [], more = {}) => ({ id: path, path, flags: [], stamp: "1", needs, ...more });
const INSIDE = ["d/e/y", "d/x", "g/a"]; // g/a was moved out of d
const ROWS = [row("d", INSIDE), row("d/e/y"), row("d/x"), row("g", ["g/a", "g/s/b"]), row("g/a", ["g"]), row("g/s/b", ["g"]), row("other")];
const NEEDED = needs(ROWS);
const keys = (picked) => [...picked.keys()].sort();
const chosen = (before, ids, wanted) => gathered(want(before, ids, wanted), NEEDED, before);

test("of rows that are not loaded yet nothing is needed", () => {
  assert.deepEqual([...needs(ROWS.slice(0, 2))].map(([id, others]) => [id, [...others]]), [["d", ["d/e/y"]]]);
});

test("what is chosen brings what it needs", () => {
  const nothing = new Map();
  assert.deepEqual(keys(chosen(nothing, ["g/s/b"], true)), ["g", "g/a", "g/s/b"]);
  assert.deepEqual(keys(chosen(nothing, ["d"], true)), ["d", "d/e/y", "d/x", "g", "g/a", "g/s/b"]);
  assert.deepEqual(keys(chosen(nothing, ["d/x"], true)), ["d/x"]);
});

test("what is let go takes with it what needs it, and no more", () => {
  const all = initial(ROWS);
  assert.deepEqual(keys(chosen(all, ["d/x"], false)), ["d/e/y", "g", "g/a", "g/s/b", "other"]);
  assert.deepEqual(keys(chosen(all, ["g"], false)), ["d/e/y", "d/x", "other"]);
  assert.deepEqual(keys(chosen(all, ["d"], false)), ["d/e/y", "d/x", "g", "g/a", "g/s/b", "other"]);
});

test("nothing is brought that nobody has just chosen", () => {
  const guarded = [row("d", ["d/.envrc", "d/x"]), row("d/.envrc", [], { flags: ["protected"] }), row("d/x")];
  assert.deepEqual(keys(gathered(initial(guarded), needs(guarded), null)), ["d/x"]);
});

test("a choice that is brought and let go at once comes to an end", () => {
  const before = new Map([["g", null]]);
  assert.deepEqual(keys(gathered(new Map([["d", null], ["d/e/y", null], ["d/x", null]]), NEEDED, before)), ["d/e/y", "d/x"]);
});

test("without such rows nothing is looked at", () => {
  const rows = [row("a"), row("a/b")];
  const picked = initial(rows);
  assert.equal(gathered(picked, needs(rows), new Map()), picked);
});
