import assert from "node:assert/strict";
import { test } from "node:test";
import { gaps, open, pairs, returns, runs, shown } from "../../../../src/mudroom/ext/web/page/rows.js";

/** @returns {any} */
const hunk = (/** @type {number} */ old_start, /** @type {number} */ old_lines, /** @type {number} */ new_start,
  /** @type {number} */ new_lines, /** @type {any[]} */ lines = []) => ({ blocks: [], old_start, old_lines, new_start, new_lines, lines });
/** @returns {any} */
const line = (/** @type {string} */ kind, /** @type {number} */ block, text = "x", ends = true) =>
  [kind, 1, 1, text, block, [], text.endsWith("\\r") ? [[text.length - 2, text.length]] : [], 0, ends];

test("what lies between hunks, before the first and after the last", () => {
  const found = gaps([hunk(5, 7, 5, 9), hunk(30, 6, 32, 6)], 50);
  assert.deepEqual([...found.values()], [
    { at: 0, first: 1, count: 4, shift: 0 }, { at: 1, first: 14, count: 18, shift: -2 }, { at: 2, first: 38, count: 13, shift: -2 },
  ]);
});

test("nothing is folded where hunks touch the ends, or what follows is not known", () => {
  assert.deepEqual([...gaps([hunk(1, 3, 1, 4)], 4).keys()], []);
  assert.deepEqual([...gaps([hunk(1, 3, 1, 4)], null).keys()], []);
  assert.deepEqual([...gaps([hunk(0, 0, 1, 4)], 4).keys()], []);
  assert.deepEqual([...gaps([hunk(1, 4, 0, 0)], 0).keys()], []);
  assert.deepEqual([...gaps([], 10).keys()], []);
});

test("a hunk of nothing but added lines stands after the line it names", () => {
  assert.deepEqual([...gaps([hunk(3, 0, 4, 2)], 10).values()], [
    { at: 0, first: 1, count: 3, shift: 0 }, { at: 1, first: 6, count: 5, shift: -2 },
  ]);
});

test("a gap opens from its ends until nothing is left", () => {
  const gap = { at: 1, first: 11, count: 50, shift: 0 };
  let opened = open(gap, { top: 0, bottom: 0 }, "top", 20);
  opened = open(gap, opened, "bottom", 20);
  assert.deepEqual(shown(gap, opened), [[11, 20], [41, 20]]);
  opened = open(gap, opened, "top", 20);
  assert.deepEqual(opened, { top: 30, bottom: 20 });
  assert.deepEqual(open(gap, { top: 0, bottom: 20 }, "all", 20), { top: 30, bottom: 20 });
});

test("removed stands beside added of the same block only", () => {
  const lines = [line(" ", -1), line("-", 0, "a"), line("-", 0, "b"), line("+", 0, "c"), line("+", 1, "d"), line(" ", -1)];
  assert.deepEqual(pairs(lines).map(({ old, new_ }) => [old?.[3] ?? null, new_?.[3] ?? null]), [
    ["x", "x"], ["a", "c"], ["b", null], [null, "d"], ["x", "x"],
  ]);
});

test("runs are of one block, and not too long", () => {
  const lines = [line(" ", -1), line(" ", -1), line("-", 0), line("+", 0), line("+", 0), line("+", 1)];
  assert.deepEqual(runs(lines, 2).map(({ block, begins, lines: mine }) => [block, begins, mine.length]), [
    [-1, true, 2], [0, true, 2], [0, false, 1], [1, true, 1],
  ]);
});

test("ends of lines are said once if all are the same", () => {
  assert.equal(returns([hunk(1, 1, 1, 1, [line(" ", -1, "a\\r"), line("+", 0, "b\\r"), line("+", 0, "c", false)])]), "all");
  assert.equal(returns([hunk(1, 1, 1, 1, [line("-", 0, "a"), line("+", 0, "a\\r")])]), "some");
  assert.equal(returns([hunk(1, 1, 1, 1, [line("-", 0, "a")])]), "none");
});
