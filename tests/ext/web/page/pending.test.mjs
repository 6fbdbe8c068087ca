// What is chosen of a fork and not applied, over a reload.
import assert from "node:assert/strict";
import { test } from "node:test";

import { makePending } from "../../../../src/mudroom/ext/web/page/pending.js";
import { among, blocksOf, carried, dropped, initial, request, want, wantBlocks, wantMode } from "../../../../src/mudroom/ext/web/page/picked.js";

/** @returns {any} */
const row = (/** @type {string} */ id, /** @type {any} */ more = {}) => ({ id, path: id, flags: [], stamp: "1", hunks: true, ...more });
const ROWS = [row("a"), row("b"), row("c", { mode: ["0644", "0755"] }), row(".git/hooks/x", { flags: ["protected", "executes-later"] })];

/** A memory as a browser has it. */
function storage() {
  /** @type {Map<string, string>} */
  const kept = new Map();
  return {
    kept,
    get: (/** @type {string} */ key) => kept.get(key) ?? null,
    set: (/** @type {string} */ key, /** @type {string} */ value) => Boolean(kept.set(key, value)),
  };
}

/** What is asked for after a reload, if these rows are there then. */
function reloaded(/** @type {any} */ picked, /** @type {any} */ rows = ROWS, /** @type {any} */ before = ROWS) {
  const memory = storage();
  const pending = makePending(memory);
  pending.set("p/f", { created: 7, picked, rows: before });
  pending.write();
  const was = makePending(memory).get("p/f", 7);
  return was && request(rows, carried(was.picked, /** @type {any} */ (was.rows), rows));
}

test("what was chosen is chosen after a reload", () => {
  const chosen = [
    want(initial(ROWS), ["b"], false),
    wantBlocks(initial(ROWS), ROWS[0], new Set([2, 0])),
    wantBlocks(initial(ROWS), ROWS[0], null),
    wantMode(wantBlocks(want(initial(ROWS), ["c"], false), ROWS[2], new Set([1])), ROWS[2], true),
    wantMode(initial(ROWS), ROWS[2], false),
    want(initial(ROWS), [".git/hooks/x"], true),
    want(initial(ROWS), ["a", "b", "c"], false),
  ];
  for (const picked of chosen) assert.deepEqual(reloaded(picked), picked.size === 3 && request(ROWS, picked) === null ? null : request(ROWS, picked));
});

test("a file that is another one now loses its hunks, and none is wanted that is new", () => {
  const picked = wantBlocks(want(initial(ROWS), ["b"], false), ROWS[0], new Set([1]));
  const ids = (/** @type {any} */ asked) => asked.map((/** @type {any} */ one) => one.id);
  assert.deepEqual(ids(reloaded(picked, [row("a", { stamp: "2" }), ...ROWS.slice(1), row("new")])), ["c"]);
  assert.deepEqual(ids(reloaded(picked, [...ROWS, row("new")])), ["a", "c"]);
  const named = want(initial(ROWS), [".git/hooks/x"], true);
  assert.deepEqual(ids(reloaded(named, [...ROWS, row("new"), row(".git/config", { flags: ["protected"] })])), ["a", "b", "c", ".git/hooks/x", "new"]);
});

test("rows that come a few at a time", () => {
  const all = Array.from({ length: 30 }, (_, at) => row(`f${at}`));
  const memory = storage();
  const pending = makePending(memory);
  pending.set("p/f", { created: 7, picked: wantBlocks(want(initial(all), ["f25"], false), all[28], new Set([3])), rows: all });
  pending.write();
  const was = /** @type {any} */ (makePending(memory).get("p/f", 7));
  const first = all.slice(0, 10);
  let picked = carried(was.picked, was.rows, first, 30);
  assert.deepEqual(request(first, picked, 30)?.length, 10);
  picked = carried(picked, among(was.rows, first, 30), all, 30);
  assert.equal(request(all, picked)?.length, 29);
  assert.deepEqual(blocksOf(picked, "f28"), new Set([3]));
});

test("whatever was chosen and whatever is there now, no more is asked for than was wanted of it", () => {
  let seed = 7;
  const any = (/** @type {number} */ below) => (seed = (seed * 48271) % 2147483647) % below;
  for (let round = 0; round < 300; round++) {
    const before = Array.from({ length: any(9) }, (_, at) => row(`f${at}`, { flags: any(4) ? [] : ["protected"], stamp: String(any(2)) }));
    let picked = initial(before);
    for (const one of before) if (!any(3)) picked = any(2) ? want(picked, [one.id], any(2) === 1) : wantBlocks(picked, one, new Set([any(3)]));
    const rows = Array.from({ length: 12 }, (_, at) => row(`f${at}`, { flags: before[at]?.flags ?? (any(2) ? [] : ["protected"]), stamp: String(any(2)) })).filter(() => any(4));
    const everything = request(before, picked) === null;
    const asked = reloaded(picked, rows, before);
    if (everything) {
      assert.equal(asked, null, "at first");
      continue;
    }
    const all = before.every((one) => one.flags.length || picked.get(one.id) === null);
    for (const one of asked ?? rows.filter((now) => !now.flags.length)) {
      const now = rows.find(({ id }) => id === one.id);
      const was = before.find(({ id }) => id === one.id);
      assert.ok(now, "it is there");
      if (!was) assert.ok(all && !now.flags.length, "it is new");
      else if (picked.get(one.id)) assert.deepEqual([was.stamp, one.blocks], [now.stamp, [...(picked.get(one.id)?.blocks ?? [])]]);
      else if (now.flags.length) assert.deepEqual([was.stamp, picked.get(one.id)], [now.stamp, null]);
      else assert.equal(picked.get(one.id), null);
    }
  }
});

test("nothing is kept of what nobody has chosen, of what is gone, and of another fork of that name", () => {
  const memory = storage();
  const pending = makePending(memory);
  const chosen = { created: 7, picked: want(initial(ROWS), ["a"], false), rows: ROWS };
  pending.set("p/f", { ...chosen, picked: initial(ROWS) });
  assert.equal(pending.get("p/f", 7), null);
  pending.set("p/f", chosen);
  assert.equal(pending.get("p/other", 7), null);
  assert.equal(pending.get("p/f", 8), null, "made at another time");
  assert.equal(pending.get("p/f", 7), null, "and that one is not to be had any more");
  pending.set("p/f", chosen);
  pending.write();
  pending.forget("p/f");
  pending.write();
  assert.deepEqual([...memory.kept], [["picked", ""]]);
});

test("only so much is kept over a reload, and what was chosen last goes first", () => {
  const memory = storage();
  const pending = makePending(memory, 200);
  const many = Array.from({ length: 100 }, (_, at) => row(`file-${at}`));
  pending.set("p/old", { created: 1, picked: want(initial(ROWS), ["a"], false), rows: ROWS });
  pending.set("p/large", { created: 1, picked: want(initial(many), ["file-1"], false), rows: many });
  pending.set("p/new", { created: 1, picked: want(initial(ROWS), ["b"], false), rows: ROWS });
  pending.write();
  assert.ok((memory.get("picked") ?? "").length <= 202 + '["p/large",1],'.length);
  const again = makePending(memory);
  assert.deepEqual(["p/old", "p/large", "p/new"].map((fork) => Boolean(again.get(fork, 1)?.lost)), [false, true, false]);
  const large = /** @type {any} */ (again.get("p/large", 1));
  assert.deepEqual(request(many, carried(large.picked, large.rows, many, many.length, !large.lost)), [], "nothing is chosen then");
  assert.equal(again.get("p/large", 2), null, "of that fork");
  assert.equal(pending.get("p/large", 1)?.picked.size, 99, "as long as the page is open");
  for (let at = 0; at < 30; at++) pending.set(`p/${at}`, { created: 1, picked: want(initial(ROWS), ["b"], false), rows: ROWS });
  assert.deepEqual(["p/9", "p/10"].map((fork) => Boolean(pending.get(fork, 1)?.lost)), [true, false]);
});

test("a memory that holds something else holds nothing", () => {
  for (const text of ["{", "3", "[[1,2,3]]", '[["p/f",7,[["a",0,"1",[["x"],true]]]]]', '[["p/f","7",[]]]', '[["p/f",7,[[1,0,"",1]]]]', "null", '[["p/f",7,[0,"a"],"11",[]]]', '[["p/f",7,[0,"a"],"1",[[1,"",1]]]]', '[["p/f",7,["a",0],"1",[]]]', '[["p/f",7,[0,"a"]]]']) {
    const memory = storage();
    memory.set("picked", text);
    assert.equal(makePending(memory).get("p/f", 7), null, text);
  }
});

test("what is protected or runs later is chosen as it was, over two reloads, too", () => {
  const later = row("Makefile", { flags: ["executes-later"] });
  const rows = [...ROWS, later, row("git", { flags: ["repository"] })];
  const chosen = want(initial(rows), [".git/hooks/x", "git"], true);
  const others = rows.map((one) => ({ ...one, stamp: "2" }));
  const ids = (/** @type {any} */ asked) => asked.map((/** @type {any} */ one) => one.id);
  assert.deepEqual(ids(reloaded(chosen, rows, rows)), ids(rows));
  assert.deepEqual(ids(reloaded(chosen, others, rows)), ["a", "b", "c", "git"]);
  const memory = storage();
  makePending(memory).set("p/f", { created: 7, picked: chosen, rows });
  for (let time = 0; time < 2; time++) {
    const pending = makePending(memory);
    pending.set("p/f", pending.get("p/f", 7) ?? { created: 7, picked: chosen, rows });
    pending.write();
  }
  const was = /** @type {any} */ (makePending(memory).get("p/f", 7));
  const next = carried(was.picked, was.rows, others);
  assert.deepEqual(dropped(was.picked, next, others), [".git/hooks/x", "Makefile"]);
  assert.deepEqual(carried(was.picked, was.rows, rows), chosen);
});

test("a memory that takes less than we thought keeps that there was a choice", () => {
  const memory = storage();
  const pending = makePending({ get: memory.get, set: (key, value) => value.length < 20 && memory.set(key, value) });
  pending.set("p/f", { created: 7, picked: want(initial(ROWS), ["a"], false), rows: ROWS });
  pending.write();
  assert.equal(makePending(memory).get("p/f", 7)?.lost, true);
});

test("twenty thousand files are kept, whichever of them are chosen", () => {
  const id = (/** @type {number} */ at) => Buffer.from(`web/node_modules/package-${at % 997}/dist/esm/internal/module-${at}.js`).toString("base64url");
  const all = Array.from({ length: 20_000 }, (_, at) => id(at)).sort().map((one, at) => row(one, { flags: at % 10 ? [] : ["executes-later"], stamp: "0123abcd" }));
  for (const picked of [want(initial(all), [all[7].id], false), want(new Map(), [all[7].id, all[10].id], true), want(initial(all), all.slice(0, 9_000).map((one) => one.id), false)]) {
    const memory = storage();
    const pending = makePending(memory);
    pending.set("p/f", { created: 7, picked, rows: all });
    pending.write();
    const was = /** @type {any} */ (makePending(memory).get("p/f", 7));
    assert.deepEqual(carried(was.picked, was.rows, all), picked);
  }
});

test("ten thousand files are kept within a blink", () => {
  const all = Array.from({ length: 10_000 }, (_, at) => row(`${"d".repeat(40)}${at}`));
  const memory = storage();
  const pending = makePending(memory);
  pending.set("p/f", { created: 7, picked: want(initial(all), [all[3].id], false), rows: all });
  pending.write();
  assert.equal(makePending(memory).get("p/f", 7)?.picked.size, 9_999);
});
