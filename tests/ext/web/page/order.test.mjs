// The list by risk: headings in their order, what is in them, and what is folded.
import assert from "node:assert/strict";
import { test } from "node:test";

import { byRisk, folded, isMixed } from "../../../../src/mudroom/ext/web/page/order.js";

/** @param {string} path @param {string} risk @param {any} [more] @returns {any} */
const row = (path, risk, more = {}) => ({ id: "id:" + path, path, change: "modified", added: 1, removed: 2, flags: [], source: "", risk, ...more });
/** @param {any[]} rows @param {Iterable<string>} [closed] */
const drawn = (rows, closed = []) => byRisk(rows, new Set(closed)).map((one) => "  ".repeat(one.level - 1) + one.name + (one.row ? "" : ` ${one.ids.length} +${one.added} -${one.removed}`));

const ROWS = [row("b/z", "dull"), row("a", "code"), row("c", "code", { weight: 9 }), row("d", "later"), row("e", "tests", { flags: ["conflict"] })];

test("what costs most comes first, and in a heading what has signs", () => {
  assert.deepEqual(drawn(ROWS), ["Conflicts 1 +1 -2", "  e", "Runs later, more rights 1 +1 -2", "  d", "Code 2 +2 -4", "  c", "  a", "Changes nothing, proven 1 +1 -2", "  b/z"]);
});

test("files with remarks that were sent come behind the conflicts", () => {
  const items = byRisk(ROWS, new Set(), new Set(["id:a", "id:e"]));
  assert.deepEqual(items.slice(0, 4).map((one) => one.name), ["Conflicts", "e", "Your remarks, sent", "a"]);
  assert.equal(isMixed([row("a", "code"), row("b", "code")], new Set(["id:b"])), true);
});

test("what changes nothing is folded, and counted", () => {
  assert.deepEqual(drawn(ROWS, folded(ROWS)).slice(-2), ["  a", "Changes nothing, proven 1 +1 -2"]);
  const items = byRisk(ROWS, folded(ROWS));
  assert.deepEqual(items.filter((one) => one.heading).map((one) => [one.position, one.among, one.open]), [[1, 4, true], [2, 4, true], [3, 4, true], [4, 4, false]]);
});

test("a repository's own files are folded", () => {
  const own = row(".git/index", "generated", { flags: ["repository"] });
  assert.deepEqual([...folded([...ROWS, own])], ["risk dull", "risk generated"]);
  assert.deepEqual([...folded([...ROWS, own, row("a.min.js", "generated")])], ["risk dull"]);
});

test("there is an order only among several risks", () => {
  assert.equal(isMixed(ROWS), true);
  assert.equal(isMixed([row("a", "code"), row("b", "code")]), false);
  assert.equal(isMixed([]), false);
  assert.equal(isMixed([row("a", "code"), row("b", "code", { flags: ["conflict"] })]), true);
});
