// Which two candidates of a try are compared.
import assert from "node:assert/strict";
import { test } from "node:test";
import { alike, BASE, canShow, groupOf, listed, pairOf, sideName, verdict } from "../../../../src/mudroom/ext/web/page/pair.js";

const group = (...candidates) => ({ candidates, change: "modified", added: 1, removed: 0 });
const path = (groups, unchanged = [], compared = true) => ({ id: "YQ", path: "a", extent: "", groups, unchanged, compared });

test("the first pair shows a difference", () => {
  assert.deepEqual(pairOf(path([group(0, 2), group(1)])), [0, 1]);
  assert.deepEqual(pairOf(path([group(1)], [0, 2])), [0, 1]);
  assert.deepEqual(pairOf(path([group(1, 2)])), [BASE, 1]);
  assert.deepEqual(pairOf(path([])), [BASE, BASE]);
});

test("the same on both sides", () => {
  const one = path([group(0, 2), group(1)], [3, 4]);
  assert.equal(alike(one, [0, 2]), true);
  assert.equal(alike(one, [0, 1]), false);
  assert.equal(alike(one, [3, 4]), true);
  assert.equal(alike(one, [3, BASE]), true);
  assert.equal(alike(one, [0, BASE]), false);
  assert.equal(alike(one, [1, 1]), true);
  assert.equal(groupOf(one, 2), one.groups[0]);
  assert.equal(groupOf(one, 3), null);
});

test("contents that were not compared are not said to be the same", () => {
  const one = path([group(0, 1)], [2], false);
  assert.equal(alike(one, [0, 1]), false);
  assert.equal(alike(one, [0, 0]), true);
  assert.equal(alike(one, [2, BASE]), true);
});

test("a candidate whose fork is gone is no side", () => {
  const candidates = [{ compared: true }, { compared: false }];
  assert.equal(canShow([0, BASE], candidates), true);
  assert.equal(canShow([0, 1], candidates), false);
  assert.equal(canShow([0, 7], candidates), false);
});

test("words", () => {
  assert.equal(listed([1, 4]), "1, 4");
  assert.equal(listed([1, 2, 3, 4, 5, 6, 7, 8]), "1, 2, 3, 4, 5, 6 and 2 more");
  assert.equal(sideName(BASE, []), "the original");
  assert.equal(sideName(0, [{ attempts: [3, 4] }]), "attempt 3");
  assert.equal(verdict({ state: "failed", exit_code: 0, judged: 2 }), "failed (2)");
  assert.equal(verdict({ state: "failed", exit_code: 7, judged: null }), "failed (7)");
  assert.equal(verdict({ state: "passed", exit_code: 1, judged: 0 }), "passed");
});
