import assert from "node:assert/strict";
import { test } from "node:test";
import { choose, extent, wants } from "../../../../src/mudroom/ext/web/page/choice.js";

test("null is everything, and everything becomes null", () => {
  assert.equal(wants(null, 3), true);
  const without = choose(null, [1], false, 3);
  assert.deepEqual([...(without ?? [])], [0, 2]);
  assert.equal(choose(without, [1], true, 3), null);
});

test("a choice that was given is not changed", () => {
  const given = new Set([0, 1]);
  choose(given, [0], false, 3);
  assert.deepEqual([...given], [0, 1]);
});

test("how much of some blocks is wanted", () => {
  assert.equal(extent(null, [0, 1]), "all");
  assert.equal(extent(new Set([0]), [0, 1]), "some");
  assert.equal(extent(new Set(), [0, 1]), "none");
});
