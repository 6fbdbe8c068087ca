// What is chosen of a fork, and the tree that it is chosen from.
import assert from "node:assert/strict";
import { test } from "node:test";

import { among, blocksOf, carried, counted, extentOf, initial, modeOf, repositories, request, ticked, want, wantBlocks, wantMode, together } from "../../../../src/mudroom/ext/web/page/picked.js";
import { flat, grow, lines, offered, sifted } from "../../../../src/mudroom/ext/web/page/tree.js";

const row = (path, more = {}) => ({
  id: path, path, change: "modified", type: "file", added: 1, removed: 2, size: 3, flags: [], source: "", hunks: true, stamp: "1", ...more,
});
const ROWS = [row("a/b/c.py"), row("a/b/d.py", { change: "added" }), row("z"), row(".git/hooks/x", { flags: ["protected", "executes-later"] })];

test("everything is wanted at first but what has to be named", () => {
  const picked = initial(ROWS);
  assert.deepEqual([...picked.keys()], ["a/b/c.py", "a/b/d.py", "z"]);
  assert.equal(request(ROWS, picked), null);
});

test("what is protected is asked for by name", () => {
  const picked = want(initial(ROWS), [".git/hooks/x"], true);
  assert.deepEqual(request(ROWS, picked).map((one) => one.id), ROWS.map((one) => one.id));
});

test("nor is it named by one tick for many", () => {
  const [guarded, ids, hooks] = [new Set([".git/hooks/x"]), ROWS.map((one) => one.id), [".git/hooks/x"]];
  const plain = initial(ROWS);
  assert.equal(ticked(plain, ids, guarded).size, 0, "all are wanted that can be, so none is then");
  assert.deepEqual(ticked(new Map(), ids, guarded), plain);
  assert.deepEqual(ticked(want(plain, ["z"], false), ids, guarded), new Map([["a/b/c.py", null], ["a/b/d.py", null], ["z", null]]));
  const named = ticked(plain, hooks, guarded);
  assert.equal(named.size, 4);
  assert.deepEqual([ticked(named, hooks, guarded), ticked(named, ids, guarded).size], [plain, 0]);
});

test("blocks of a file, none of which means not the file", () => {
  let picked = wantBlocks(initial(ROWS), ROWS[2], new Set([2, 0]));
  assert.deepEqual(request(ROWS, picked).find((one) => one.id === "z").blocks, [0, 2]);
  assert.equal(extentOf(picked, ["z"]), "some");
  picked = wantBlocks(picked, ROWS[2], new Set());
  assert.equal(extentOf(picked, ["z"]), "none");
  assert.equal(extentOf(wantBlocks(picked, ROWS[2], null), ["z"]), "all");
});

const TOOL = row("tool", { mode: ["0644", "4755"] });
const asked = (picked) => request([TOOL, row("z")], picked)?.find((one) => one.id === "tool");

test("who chooses hunks has not chosen other permissions", () => {
  const nothing = want(initial([TOOL, row("z")]), ["tool"], false);
  const hunk = wantBlocks(nothing, TOOL, new Set([0]));
  assert.deepEqual(asked(hunk), { id: "tool", blocks: [0], mode: false });
  assert.equal(modeOf(hunk, "tool"), false);
  assert.deepEqual(asked(wantBlocks(nothing, TOOL, null)), { id: "tool", blocks: null, mode: false }, "its only hunk");
  assert.equal(extentOf(wantBlocks(nothing, TOOL, null), ["tool"]), "some");
  assert.deepEqual(asked(wantBlocks(initial([TOOL]), TOOL, new Set([1]))), { id: "tool", blocks: [1], mode: false });
});

test("permissions are chosen by a tick of their own, and with all of the file", () => {
  const rows = [TOOL, row("z")];
  const nothing = want(initial(rows), ["tool"], false);
  const both = wantMode(wantBlocks(nothing, TOOL, new Set([0])), TOOL, true);
  assert.deepEqual(asked(both), { id: "tool", blocks: [0], mode: true });
  assert.deepEqual(asked(wantBlocks(both, TOOL, new Set([0, 2]))), { id: "tool", blocks: [0, 2], mode: true });
  assert.deepEqual(asked(wantMode(nothing, TOOL, true)), { id: "tool", blocks: [], mode: true });
  assert.equal(wantMode(wantMode(nothing, TOOL, true), TOOL, false).has("tool"), false);
  assert.equal(modeOf(initial(rows), "tool"), true);
  assert.equal(request(rows, initial(rows)), null);
  assert.deepEqual(asked(wantMode(initial(rows), TOOL, false)), { id: "tool", blocks: null, mode: false });
  assert.equal(request(rows, wantBlocks(both, TOOL, null)), null, "all of it after all");
});

test("of several files all, some or none", () => {
  const picked = want(initial(ROWS), ["a/b/c.py"], false);
  assert.equal(extentOf(picked, ["a/b/c.py", "a/b/d.py"]), "some");
  assert.equal(extentOf(picked, ["a/b/d.py", "z"]), "all");
  assert.equal(extentOf(picked, ["a/b/c.py"]), "none");
  assert.equal(extentOf(picked, []), "none");
});

test("a choice is carried to other rows", () => {
  const before = wantBlocks(want(initial(ROWS), ["z"], false), ROWS[0], new Set([1]));
  const rows = [ROWS[0], ROWS[2], row("new"), row(".git/config", { flags: ["protected"] })];
  const after = carried(before, ROWS, rows);
  assert.deepEqual([...after.keys()].sort(), ["a/b/c.py"], "who has chosen some has not chosen what is new");
  assert.deepEqual([...carried(initial(ROWS), ROWS, rows).keys()].sort(), ["a/b/c.py", "new", "z"]);
  assert.deepEqual(blocksOf(after, "a/b/c.py"), new Set([1]));
  const moved = carried(before, ROWS, [row("a/b/c.py", { stamp: "2" }), row("a/b/d.py", { stamp: "2" })]);
  assert.deepEqual([...moved.keys()], ["a/b/d.py"]);
});

/** What is chosen after the rows have come again, a few at a time. */
function reloaded(picked, before, pages, total) {
  for (const rows of pages) [picked, before] = [carried(picked, before, rows, total), among(before, rows, total)];
  return { picked, before };
}

test("a choice among more rows than come at once outlives that they come again", () => {
  const all = Array.from({ length: 50 }, (_, at) => row(`f${at}`));
  const chosen = wantBlocks(want(initial(all), ["f48", "f49"], false), row("f47"), new Set([1]));
  const { picked, before } = reloaded(chosen, all, [all.slice(0, 20), all.slice(0, 40), all], 50);
  assert.deepEqual(request(all, picked), request(all, chosen));
  assert.equal(before, all);
  const early = reloaded(want(initial(all), ["f3"], false), all, [all.slice(0, 20), all], 50).picked;
  assert.equal(early.size, 49);
});

test("rows of which the first are all withheld are chosen as if they had come at once", () => {
  const all = [...Array.from({ length: 30 }, (_, at) => row(`.git/objects/${at}`, { flags: ["repository"] })), row("a"), row("b")];
  for (const pages of [[all], [all.slice(0, 20), all], [all.slice(0, 30), all], [all.slice(0, 31), all]]) {
    const { picked } = reloaded(initial(pages[0]), pages[0], pages, all.length);
    assert.deepEqual([...picked.keys()], ["a", "b"], `${pages[0].length} rows at first`);
  }
  assert.deepEqual([...carried(new Map(), [], all).keys()], ["a", "b"], "nor was there anything before");
  assert.deepEqual([...carried(new Map(), all.slice(0, 20), all, all.length, false).keys()], [], "unless what was chosen was too much to be kept");
});

test("of rows that come again one is gone, one is new, and one is another", () => {
  const all = Array.from({ length: 30 }, (_, at) => row(`f${at}`));
  const chosen = wantBlocks(wantBlocks(initial(all), row("f2"), new Set([0])), row("f28"), new Set([0]));
  const next = [...all.slice(0, 28), row("f28", { stamp: "2" }), row("new")];
  const { picked } = reloaded(chosen, all, [next.slice(0, 20), next], 30);
  assert.deepEqual(["f2", "f28", "f29", "new"].map((id) => picked.has(id)), [true, false, false, false]);
});

test("the rest of what comes first is wanted as its beginning, unless somebody has chosen", () => {
  const all = Array.from({ length: 50 }, (_, at) => row(`f${at}`));
  const first = all.slice(0, 20);
  assert.equal(reloaded(initial(first), first, [all.slice(0, 40), all], 50).picked.size, 50);
  assert.equal(reloaded(want(initial(first), ["f3"], false), first, [all.slice(0, 40), all], 50).picked.size, 19);
});

test("what is not here is not counted", () => assert.equal(counted(ROWS.slice(0, 1), initial(ROWS)), 1));

test("a tree, with what is alone in a directory joined to it", () => {
  const shown = lines(grow(ROWS), new Set());
  assert.deepEqual(shown.map((one) => [one.name, one.level, one.ids.length]),
    [["a/b", 1, 2], ["c.py", 2, 1], ["d.py", 2, 1], [".git/hooks", 1, 1], ["x", 2, 1], ["z", 1, 1]]);
  assert.deepEqual(shown.map((one) => [one.position, one.among]), [[1, 3], [1, 2], [2, 2], [2, 3], [1, 1], [3, 3]]);
  assert.deepEqual([shown[0].added, shown[0].removed], [2, 4]);
});

test("a directory that is closed shows nothing of what is in it", () => {
  assert.deepEqual(lines(grow(ROWS), new Set(["a/b/"])).map((one) => one.name), ["a/b", ".git/hooks", "x", "z"]);
  assert.deepEqual(flat(ROWS).map((one) => one.name), ROWS.map((one) => one.path));
});

test("rows by name and by what they are", () => {
  assert.deepEqual(sifted(ROWS, "B/C", new Set()).map((one) => one.id), ["a/b/c.py"]);
  assert.deepEqual(sifted(ROWS, "", new Set(["added", "protected"])).map((one) => one.id), ["a/b/d.py", ".git/hooks/x"]);
  assert.deepEqual(sifted([row("new", { source: "old" })], "OLD", new Set()).length, 1);
  assert.deepEqual(offered(ROWS), [["executes-later", "runs later", 1], ["protected", "protected", 1], ["added", "added", 1], ["modified", "modified", 3]]);
  assert.deepEqual(offered([row("a")]), []);
});

test("ten thousand files are a tree within a blink", () => {
  const rows = Array.from({ length: 10_000 }, (_, at) => row(`d${at % 97}/e${at % 13}/file-${at}.py`));
  const root = grow(rows);
  assert.equal(root.ids.length, 10_000);
  assert.equal(lines(root, new Set()).length, 10_000 + 97 + 97 * 13);
});

test("of rows that are not all here, only those that are here are asked for", () => {
  const asked = request(ROWS, initial(ROWS), ROWS.length + 1);
  assert.deepEqual(asked.map((one) => one.id), [...initial(ROWS).keys()]);
});

const part = (path) => row(path, { flags: ["repository"] });
const COMMITTED = [row("a.py"), part(".git/index"), part(".git/objects/1"), row(".git/hooks/x", { flags: ["protected"] }), part("lib/.git/index")];

test("a repository is wanted as a whole, or not at all", () => {
  const first = initial(COMMITTED);
  assert.deepEqual([...first.keys()], ["a.py"]);
  assert.equal(request(COMMITTED, first), null);
  assert.deepEqual(repositories(COMMITTED, first), []);
  const taken = together(first, want(first, [".git/index"], true), COMMITTED);
  assert.deepEqual([...taken.keys()].sort(), [".git/index", ".git/objects/1", "a.py"]);
  assert.deepEqual(repositories(COMMITTED, taken), [".git"]);
  assert.deepEqual([...together(taken, want(taken, [".git/objects/1"], false), COMMITTED).keys()], ["a.py"]);
  assert.equal(together(taken, want(taken, ["a.py"], false), COMMITTED).size, 2, "another file is no word about it");
  assert.deepEqual(repositories(COMMITTED, want(first, ["lib/.git/index"], true)), ["lib/.git"]);
});

test("what has come to a repository that is wanted is wanted, too", () => {
  const more = [...COMMITTED, part(".git/objects/2")];
  const wanted = (picked) => together(new Map(), carried(picked, COMMITTED, more), more);
  assert.deepEqual([...wanted(initial(COMMITTED)).keys()], ["a.py"]);
  const taken = together(initial(COMMITTED), want(initial(COMMITTED), [".git/index"], true), COMMITTED);
  assert.equal(wanted(taken).has(".git/objects/2"), true);
});
