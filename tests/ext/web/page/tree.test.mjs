// Rows as a tree: what lies where, and how much of it, however the rows are ordered.
import assert from "node:assert/strict";
import { test } from "node:test";

import { firstOf, flat, grow, lines, offered, repositories } from "../../../../src/mudroom/ext/web/page/tree.js";

/** @param {string} path @param {any} [more] @returns {any} */
const row = (path, more = {}) => ({ id: "id:" + path, path, change: "added", added: 1, removed: 2, flags: [], source: "", ...more });
/** @param {any[]} rows @param {string[]} [closed] */
const drawn = (rows, closed = []) => lines(grow(rows), new Set(closed)).map((one) => "  ".repeat(one.level - 1) + one.name + (one.row ? "" : `/ ${one.ids.length} +${one.added} -${one.removed}`));

test("directories come before what lies beside them, and count what is in them", () => {
  const rows = ["z", "d/a", "d/e/b", "d/c", "f/g/h", "f/g/i/j"].map((path) => row(path));
  assert.deepEqual(drawn(rows), ["d/ 3 +3 -6", "  e/ 1 +1 -2", "    b", "  a", "  c", "f/g/ 2 +2 -4", "  i/ 1 +1 -2", "    j", "  h", "z"]);
  assert.deepEqual(drawn(rows, ["d/"]), ["d/ 3 +3 -6", "f/g/ 2 +2 -4", "  i/ 1 +1 -2", "    j", "  h", "z"]);
  assert.deepEqual(drawn([]), []);
});

test("rows of any order make the tree that one by one would", () => {
  let seed = 1;
  const random = (/** @type {number} */ below) => (seed = (seed * 48271) % 2147483647) % below;
  for (let round = 0; round < 200; round++) {
    const rows = Array.from({ length: random(12) }, (_, at) => row([...Array.from({ length: random(4) }, () => "abc"[random(3)]), "f" + at].join("/")));
    const root = grow(rows);
    assert.deepEqual(root.ids, rows.map((one) => one.id));
    const found = lines(root, new Set());
    assert.deepEqual(found.filter((one) => one.row).map((one) => one.key).sort(), root.ids.toSorted());
    for (const one of found.filter((item) => !item.row)) {
      const within = rows.filter((item) => item.path.startsWith(one.key));
      assert.deepEqual([one.ids, one.added, one.removed], [within.map((item) => item.id), within.length, 2 * within.length]);
    }
  }
});

test("a repository's own files are closed at first, but for those that run", () => {
  const git = (/** @type {string} */ path, /** @type {string[]} */ ...more) => row(path, { flags: ["repository", ...more] });
  const rows = [git(".git/HEAD"), git(".git/objects/ab/c"), git("sub/.git/refs/heads/x"), row("sub/a"), row("b")];
  assert.deepEqual([...repositories(grow(rows))].sort(), [".git/", "sub/.git/refs/heads/"]);
  assert.deepEqual(lines(grow(rows), repositories(grow(rows))).map((one) => one.name), [".git", "sub", ".git/refs/heads", "a", "b"]);
  const runs = [...rows, row(".git/hooks/pre-commit", { flags: ["protected"] }), git(".git/config", "protected")];
  assert.deepEqual([...repositories(grow(runs))].sort(), [".git/objects/ab/", "sub/.git/refs/heads/"]);
  assert.deepEqual(repositories(grow(rows.slice(0, 3))), new Set(), "there is nothing else to look at");
  assert.deepEqual(repositories(grow([])), new Set());
});

test("as deep as a path can be", () => {
  const deep = row("d/".repeat(2000) + "f");
  const found = lines(grow([deep, row("f")]), new Set());
  assert.deepEqual(found.map((one) => [one.level, one.name.length, one.ids.length]), [[1, 3999, 1], [2, 1, 1], [1, 1, 1]]);
});

test("filters that leave some, and not all by what happened to them", () => {
  const rows = [row("a", { flags: ["binary"] }), row("b", { flags: ["binary", "large"] }), row("c")];
  assert.deepEqual(offered(rows), [["binary", "binary", 2], ["large", "large", 1]]);
  assert.deepEqual(offered([...rows, row("d", { change: "deleted" })]).map(([name, , count]) => [name, count]), [["binary", 2], ["large", 1], ["added", 3], ["deleted", 1]]);
  assert.deepEqual(offered([]), []);
});

test("a flat list has every row at one level", () => {
  assert.deepEqual(flat([row("d/a"), row("b")]).map((one) => [one.name, one.level, one.position, one.among]), [["d/a", 1, 1, 2], ["b", 1, 2, 2]]);
});

test("a review opens what is in conflict, then what is dangerous, then text", () => {
  const rows = [row("assets/data.bin", { flags: ["binary"] }), row("a"), row("package.json", { flags: ["executes-later"] }), row("z", { flags: ["conflict"] })];
  const opened = (/** @type {any[]} */ some) => firstOf(flat(some));
  assert.equal(opened(rows), "id:z");
  assert.equal(opened(rows.slice(0, 3)), "id:package.json");
  assert.equal(opened(rows.slice(0, 2)), "id:a");
  assert.equal(opened(rows.slice(0, 1)), "id:assets/data.bin");
  assert.equal(opened([]), undefined);
});

test("other projects stand after the project, under their names", () => {
  const roots = [{ path: "/home/u", label: "your home" }, { path: "/home/u/lib", label: "/home/u/lib" }];
  const rows = ["z", "home/u/a", "/home/u/.t/x", "/home/u/.rc", "/home/u/lib/d/c"].map((path) => row(path));
  const found = lines(grow(rows, roots), new Set());
  assert.deepEqual(found.map((one) => "  ".repeat(one.level - 1) + one.name + (one.isRoot ? ":" : "")),
    ["home/u", "  a", "z", "your home:", "  .t", "    x", "  .rc", "/home/u/lib:", "  d", "    c"]);
  assert.deepEqual(found.filter((one) => one.level === 1).map((one) => [one.position, one.among]), [[1, 4], [2, 4], [3, 4], [4, 4]]);
  assert.deepEqual(found.filter((one) => one.isRoot).map((one) => [one.key, one.ids.length]), [["/home/u/", 2], ["/home/u/lib/", 1]]);
  assert.deepEqual(lines(grow(rows, roots), new Set(["/home/u/"])).length, 7);
});
