import assert from "node:assert/strict";
import { test } from "node:test";
import { answers, decided, filled, onePiece, outcome, placed, places, split, unseen, wanted, written } from "../../../../src/mudroom/ext/web/page/merge.js";

/** @returns {any[]} lines as the server has them, numbered from `first` */
const lines = (/** @type {string[]} */ texts, first = 1) => texts.map((text, at) => [" ", 0, first + at, text, -1, [], [], 0, true]);
/** @returns {any} */
const conflict = (/** @type {number} */ number, /** @type {string[]} */ base, /** @type {string[]} */ ours, /** @type {string[]} */ theirs, end = "\n") => ({
  kind: "conflict", number, base: lines(base), ours: lines(ours), theirs: lines(theirs),
  texts: [base, ours, theirs].map((side) => side.map((line) => line + end).join("")),
});
/** @returns {any} */
const same = (/** @type {any[]} */ ours, hidden = 0) => ({ kind: "same", base: [], ours, theirs: [], hidden });
const numbers = (/** @type {any[] | null} */ some) => (some ?? []).map((line) => line[2]);
const texts = (/** @type {any[] | null} */ some) => (some ?? []).map((line) => line[3]);

test("every side has its own numbers, and what is not sent twice is there", () => {
  const [first, second, third] = placed([
    { kind: "ours", base: lines(["b"]), ours: lines(["x", "y"]), theirs: [] },
    same(lines(["s", "t"], 3)),
    { kind: "both", base: lines(["b"], 4), ours: lines(["z"], 5), theirs: [] },
  ]);
  assert.deepEqual([texts(first.theirs), texts(second.base), texts(third.theirs)], [["b"], ["s", "t"], ["z"]]);
  assert.deepEqual([numbers(second.ours), numbers(second.base), numbers(second.theirs)], [[3, 4], [2, 3], [2, 3]]);
  assert.deepEqual([numbers(third.ours), numbers(third.theirs)], [[5], [4]]);
});

test("hidden lines are in the middle, before the first, or after the last", () => {
  const middle = placed([conflict(1, [], ["a"], []), same([...lines(["b"], 2), ...lines(["z"], 9)], 6)])[1];
  assert.deepEqual([middle.fold, numbers(middle.ours), numbers(middle.theirs)], [1, [2, 9], [1, 8]]);
  const before = placed([same(lines(["z"], 9), 8)])[0];
  assert.deepEqual([before.fold, numbers(before.theirs)], [0, [9]]);
  const after = placed([conflict(1, [], ["a"], ["b", "c"]), same(lines(["d"], 2), 5)])[1];
  assert.deepEqual([after.fold, numbers(after.ours), numbers(after.theirs)], [1, [2], [3]]);
});

test("lines that are not sent count", () => {
  const [, after] = placed([{ ...conflict(1, ["a"], ["b"], ["c"]), more: [10, 20, 30], texts: null }, same(lines(["s"], 22))]);
  assert.deepEqual([numbers(after.base), numbers(after.ours), numbers(after.theirs)], [[12], [22], [32]]);
});

test("nothing is answered until every place is decided", () => {
  const regions = placed([conflict(1, ["b"], ["o"], ["t"]), conflict(2, ["b"], ["o"], ["t"])]);
  const [one, two] = places(regions);
  assert.notEqual(one.key, two.key);
  const decisions = new Map([[one.key, { take: /** @type {const} */ ("both"), text: null }]]);
  assert.equal(answers(regions, decisions), null);
  decisions.set(two.key, { take: "both", text: "mine\n\nlast" });
  assert.deepEqual(answers(regions, decisions), ["both", ["mine", "", "last"]]);
});

test("what was edited back to a side is that side", () => {
  const regions = placed([conflict(1, ["b"], ["o"], ["t"], "\r\n")]);
  assert.equal(written(regions[0], "both"), "o\nt\n");
  assert.deepEqual(answers(regions, new Map([[regions[0].key, { take: "both", text: "o\nt\n" }]])), ["both"]);
  assert.deepEqual(answers(regions, new Map([[regions[0].key, { take: "both", text: "o\n" }]])), [["o"]]);
});

test("what a browser would change is not edited", () => {
  const [region] = placed([{ ...conflict(1, ["b"], ["o"], ["t"]), texts: ["b\n", "o\rp\n", "t\n"] }]);
  assert.equal(written(region, "ours"), null);
  assert.equal(written(region, "theirs"), "t\n");
  assert.equal(written(placed([{ ...conflict(1, ["b"], ["o"], ["t"]), texts: null }])[0], "ours"), null);
});

test("a last line without its newline does not run into the next", () => {
  const [region] = placed([{ ...conflict(1, ["b"], ["o"], ["t"]), texts: ["b", "o", "t"] }]);
  assert.equal(written(region, "both"), "o\nt\n");
});

test("lines of a text: none, one that is empty, one without its end", () => {
  assert.deepEqual([split(""), split("\n"), split("a"), split("a\n\n")], [[], [""], ["a"], ["a", ""]]);
});

test("what comes out is numbered through, hidden lines counted", () => {
  const regions = placed([same(lines(["s"], 9), 8), conflict(1, ["b"], ["o"], ["t", "u"]), same(lines(["e"], 11))]);
  const pieces = outcome(regions, new Map([[regions[1].key, { take: /** @type {const} */ ("theirs"), text: null }]]));
  assert.deepEqual(pieces.map((piece) => [piece.from, texts(piece.lines), numbers(piece.lines)]), [
    ["same", ["s"], [9]], ["theirs", ["t", "u"], [10, 11]], ["same", ["e"], [12]],
  ]);
  assert.equal(outcome(regions, new Map())[1].lines, null);
});

test("a decision stays with what a place says when others move", () => {
  const before = placed([conflict(1, ["b"], ["o"], ["t"])]);
  const after = placed([conflict(1, ["new"], ["x"], ["y"]), conflict(2, ["b"], ["o"], ["t"])]);
  assert.equal(after[1].key, before[0].key);
});

test("characters that an editor does not show are told of", () => {
  assert.equal(unseen([[" ", 0, 1, "a\\u202e", -1, [], [[1, 7]], 0, true]]), true);
  assert.equal(unseen([[" ", 0, 1, "a\\r", -1, [], [[1, 3]], 0, true]]), false);
});

/** @returns {any} */
const result = (/** @type {any} */ more) => ({ size: 1, choices: null, lines: [], more: 0, text: null, unseen: false, ...more });

test("what is decided is where somebody goes on", () => {
  const regions = placed([conflict(1, ["b"], ["o"], ["t"]), conflict(2, ["b"], ["o"], ["t"]), conflict(3, ["b"], ["p"], ["t"])]);
  const choices = ["theirs", ["by", "", "hand"], []];
  const known = decided(regions, result({ choices, unseen: true }));
  assert.ok(known);
  assert.deepEqual(answers(regions, known), choices);
  assert.deepEqual(outcome(regions, known).map((piece) => [piece.from, texts(piece.lines)]), [["theirs", ["t"]], ["written", ["by", "", "hand"]], ["written", []]]);
  assert.deepEqual([...known.values()].map((one) => one.unseen ?? false), [false, true, true]);
  assert.deepEqual([decided(regions, result({})), decided(regions, null), decided(regions, undefined)], [null, null, null]);
});

test("lines whose side is not known stay those lines, whatever a side says", () => {
  const [region] = placed([conflict(1, ["b"], ["o"], ["t"])]);
  assert.deepEqual(answers([region], new Map([[region.key, { take: "written", text: "o\n" }]])), [["o"]]);
  assert.equal(written(region, "written"), null);
});

test("a result that was made in another way is its lines", () => {
  assert.deepEqual(onePiece(result({ lines: lines(["a"]), more: 3 }), "same"), [{ from: "same", place: 0, lines: lines(["a"]), hidden: 0, fold: 0, more: 3 }]);
});

test("a fold is opened from its top, its bottom, or at once", () => {
  const all = lines(Array.from({ length: 60 }, (_, at) => `line ${at}`), 11);
  const of = (/** @type {any} */ { first, count }) => all.slice(first - 11, first - 11 + count);
  const regions = [conflict(1, Array(10).fill("b"), Array(10).fill("o"), []), same([...all.slice(0, 3), ...all.slice(57)], 54)];
  const [, fold] = placed(regions);
  assert.deepEqual(["top", "bottom", "all"].map((where) => wanted(fold, /** @type {any} */ (where), 20)), [{ first: 14, count: 20 }, { first: 48, count: 20 }, { first: 14, count: 54 }]);
  let next = filled(regions, 1, fold, of(wanted(fold, "bottom", 20)));
  next = filled(next, 1, placed(next)[1], of(wanted(placed(next)[1], "top", 20)));
  const [, half] = placed(next);
  assert.deepEqual([half.hidden, half.fold, numbers(half.ours).slice(20, 25), numbers(half.theirs).slice(20, 25)], [14, 23, [31, 32, 33, 48, 49], [21, 22, 23, 38, 39]]);
  next = filled(next, 1, half, of(wanted(half, "top", 20)));
  assert.deepEqual([next[1].hidden, texts(next[1].ours)], [0, texts(all)]);
  assert.equal(regions[1].ours.length, 6, "what was given is as it was");
});

test("a fold at the beginning of a file, and one at its end", () => {
  const [before] = placed([same(lines(["z"], 9), 8), conflict(1, [], ["a"], [])]);
  assert.deepEqual(wanted(before, "all", 20), { first: 1, count: 8 });
  const [, after] = placed([conflict(1, [], ["a"], ["b", "c"]), same(lines(["d"], 2), 5)]);
  assert.deepEqual(wanted(after, "top", 3), { first: 3, count: 3 });
});
