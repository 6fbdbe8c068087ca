// What is told before an apply.
import assert from "node:assert/strict";
import { test } from "node:test";

import { initial, want, wantBlocks } from "../../../../src/mudroom/ext/web/page/picked.js";
import { amount, fateOf, fates, loses, saidOf } from "../../../../src/mudroom/ext/web/page/telling.js";

const row = (id, more = {}) => ({ id, path: id, flags: [], stamp: "1", ...more });
const side = (exists, path = "f") => ({ side: { exists }, path });
const conflict = (id, take, { ours = true, theirs = true, at = id } = {}) => (
  { id, path: id, decided: take !== "", take, base: side(true, at), ours: side(ours, at), theirs: side(theirs, id) });
const ROWS = ["a", "b", "c", "d"].map((id) => row(id));
const said = (...args) => Object.fromEntries(fates(...args).filter(([, names]) => names.length).map(([label, names]) => [label.split(",")[0], names]));

test("how much is chosen", () => {
  const all = initial(ROWS);
  assert.equal(amount(ROWS, all, 4), "all 4");
  assert.equal(amount(ROWS, want(all, ["a"], false), 4), "3 of 4");
  const part = wantBlocks(all, ROWS[1], new Set([0]));
  assert.equal(amount(ROWS, part, 4), "4, 1 of them in part");
  assert.equal(amount(ROWS, want(part, ["a"], false), 4), "3 of 4, 1 of them in part");
  assert.equal(amount(ROWS, all, 12345), "4 of 12,345");
  const open = { id: "b", path: "b", decided: false, ours: { side: { exists: true } }, theirs: { side: { exists: true } } };
  assert.equal(amount(ROWS, all, 4, [open]), "3 of 4", "what conflicts stays in the fork");
  assert.equal(amount(ROWS, all, 4, [{ ...open, decided: true, take: "theirs" }]), "all 4");
});

test("what becomes of a file, by what is decided and what there is", () => {
  const found = [
    ["", {}, "open"], ["content", {}, "merged"], ["ours", {}, "stays"], ["ours", { ours: false }, "stays"],
    ["theirs", {}, "replaces"], ["theirs", { theirs: false }, "deletes"], ["theirs", { ours: false }, "returns"],
    ["theirs", { ours: false, theirs: false }, "stays"], ["delete", {}, "deletes"], ["delete", { ours: false }, "stays"],
  ];
  for (const [take, sides, fate] of found) assert.equal(fateOf(conflict("a", take, sides)), fate, JSON.stringify([take, sides]));
  assert.deepEqual(["theirs", "delete", "content", "ours", ""].map((take) => loses(conflict("a", take))), [true, true, false, false, false]);
  assert.equal(saidOf(undefined), "");
});

test("merged is said of what is merged alone", () => {
  const drifted = ROWS;
  const known = [conflict("a", "theirs"), conflict("b", "theirs", { theirs: false }), conflict("c", "")];
  assert.deepEqual(said(ROWS, initial(ROWS), drifted, known), {
    "Overwrites changes of the project": ["a"], "Deletes changes of the project": ["b"],
    "Conflicts with the project": ["c"], "Changed in the project meanwhile: merged": ["d"],
  });
  assert.deepEqual(said(ROWS, initial(ROWS), drifted, [conflict("a", "content"), ...known.slice(1)])["Changed in the project meanwhile: merged"], ["a", "d"]);
});

test("nothing is said of what is not chosen", () => {
  const picked = want(initial(ROWS), ["a", "d"], false);
  assert.deepEqual(said(ROWS, picked, ROWS, [conflict("a", "theirs")]), { "Changed in the project meanwhile: merged": ["b", "c"] });
});

test("as long as nothing is known, nothing is called merged", () => {
  const rows = [row("a", { flags: ["conflict"] }), row("b")];
  assert.deepEqual(said(rows, initial(rows), rows, null), { "Conflicts with the project": ["a"], "Changed in the project meanwhile": ["b"] });
});

test("what the project has moved is one file", () => {
  assert.deepEqual(said(ROWS, initial(ROWS), [row("old"), row("a")], [conflict("a", "theirs", { at: "old" })]), { "Overwrites changes of the project": ["a"] });
});
