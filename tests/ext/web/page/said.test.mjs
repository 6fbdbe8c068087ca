import assert from "node:assert/strict";
import { test } from "node:test";
import { blocksOf, whereabouts } from "../../../../src/mudroom/ext/web/page/difftable.js";
import { remarks } from "../../../../src/mudroom/ext/web/page/sides.js";
import { plural, size } from "../../../../src/mudroom/ext/web/page/wording.js";

test("sizes and counts", () => {
  assert.deepEqual([0, 1, 999, 1000, 1500, 99_999, 999_400, 999_600, 5e6, 2e12].map(size),
    ["0 bytes", "1 byte", "999 bytes", "1.0 kB", "1.5 kB", "100 kB", "999 kB", "1.0 MB", "5.0 MB", "2,000 GB"]);
  assert.deepEqual([plural(1, "line"), plural(4998000, "byte"), plural(2, "copy", "copies")], ["1 line", "4,998,000 bytes", "2 copies"]);
});

/** @returns {any} */
const hunk = (/** @type {number[]} */ [old_start, old_lines, new_start, new_lines]) => ({ blocks: [], old_start, old_lines, new_start, new_lines, lines: [] });

test("where a hunk is", () => {
  assert.equal(whereabouts(hunk([4, 7, 4, 7])), "lines 4–10");
  assert.equal(whereabouts(hunk([4, 7, 5, 9])), "lines 4–10 → 5–13");
  assert.equal(whereabouts(hunk([4, 1, 4, 3])), "line 4 → lines 4–6");
  assert.equal(whereabouts(hunk([0, 0, 1, 2000])), "new lines 1–2,000");
  assert.equal(whereabouts(hunk([1, 1, 0, 0])), "removed line 1");
});

test("the blocks of lines, each once", () => {
  const line = (/** @type {number} */ block) => /** @type {any} */ ([" ", 1, 1, "", block]);
  assert.deepEqual(blocksOf([line(-1), line(3), line(3), line(-1), line(4)]), [3, 4]);
});

/** @returns {any} */
const side = (/** @type {any} */ facts) => ({ exists: true, type: "file", size: 1, mode: "0644", target: "", lines: 1, image: "", ...facts });
/** @returns {any} */
const difference = (/** @type {any} */ facts) => ({ kind: "text", old: side({}), new: side({}), hunks: [{}], ...facts });

test("what is said of a change besides its lines", () => {
  assert.deepEqual(remarks(difference({})), []);
  assert.deepEqual(remarks(difference({ old: side({ exists: false }) })), ["New: a file, mode 0644."]);
  assert.deepEqual(remarks(difference({ new: side({ exists: false }) })), ["Deleted: it was a file."]);
  assert.deepEqual(remarks(difference({ new: side({ mode: "0755" }), hunks: [] })), ["Mode 0644 → 0755.", "Its content is the same."]);
  assert.deepEqual(remarks(difference({ new: side({ type: "symlink", mode: "" }) })), ["It was a file, and is a symbolic link now."]);
  assert.match(remarks(difference({ kind: "masked" }))[0], /secrets/);
  assert.match(remarks(difference({ kind: "unknown", old: side({ exists: false }) })).join(), /not known/);
});
