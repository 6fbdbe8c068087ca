import assert from "node:assert/strict";
import { test } from "node:test";
import { chip, chips, escape, nameParts, pieces } from "../../../../src/mudroom/ext/web/page/segments.js";

const texts = (/** @type {any[]} */ found) => found.map((one) => one.text);

test("plain text is one piece, and no text none", () => {
  assert.deepEqual(pieces("abc"), [{ text: "abc", kind: "", word: false, odd: "" }]);
  assert.deepEqual(pieces(""), []);
});

test("words and tokens cut each other", () => {
  const found = pieces("let abc = 1;", [[2, 6]], [], [{ start: 0, end: 3, kind: "keyword" }, { start: 10, end: 11, kind: "literal" }]);
  assert.deepEqual(found.map(({ text, kind, word }) => [text, kind, word]), [
    ["le", "keyword", false], ["t", "keyword", true], [" ab", "", true], ["c = ", "", false], ["1", "literal", false], [";", "", false],
  ]);
});

test("spans count as the DOM does, and none is beyond the text", () => {
  assert.deepEqual(pieces("x😀y", [[1, 3]]).map(({ text, word }) => [text, word]), [["x", false], ["😀", true], ["y", false]]);
});

test("what moves text about, or is not seen, is a chip that says what it is", () => {
  const found = pieces("a\u202eb\u200b\x1b[2J\u2066");
  assert.deepEqual(texts(found), ["a", "RLO", "b", "ZWSP", "ESC", "[2J", "LRI"]);
  assert.match(found[1].odd, /U\+202E, right-to-left override/);
  for (const { text, odd } of found) if (odd) assert.doesNotMatch(text, /[\p{Cc}\p{Cf}]/u);
});

test("every control, format and surrogate character is a chip; a tab is not", () => {
  for (let code = 0; code < 0x11000; code++) {
    const text = String.fromCodePoint(code);
    if (!/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u.test(text) || code === 9) continue;
    assert.equal(chips("a" + text + "b").length, 1, code.toString(16));
  }
  assert.deepEqual(chips("a\tb"), []);
});

test("tag characters say what they spell", () => {
  assert.deepEqual(chip(0xe0069)?.[0], "TAG i");
  assert.equal(chips("\u{e0069}\u{e0067}").length, 2);
});

test("what joins an emoji is no chip, and is one anywhere else", () => {
  assert.deepEqual(chips("👩\u200d👩\u200d👧 ❤\ufe0f"), []);
  assert.equal(chips("a\u200db").length, 1);
  assert.equal(chips("a\ufe0f").length, 1);
  assert.equal(chips("👩\u200d").length, 1);
});

test("what the server has written as an escape is a chip with its name", () => {
  const found = pieces("a\\xffb\\u{202e}", [], [[1, 5], [6, 14]]);
  assert.deepEqual(texts(found), ["a", "\\xff", "b", "RLO"]);
  assert.match(found[1].odd, /a byte that is no text here/);
  assert.match(found[3].odd, /U\+202E, right-to-left override/);
});

test("escapes of all forms", () => {
  assert.deepEqual(["\\r", "\\n", "\\x1b", "\\u{200b}", "\\u{e0069}", "\\u{d800}"].map((one) => escape(one)[0]),
    ["CR", "LF", "ESC", "ZWSP", "TAG i", "U+D800"]);
  assert.deepEqual(escape("<b>"), ["<b>", "written as <b>: it cannot be shown as it is"]);
  assert.equal(escape("\\u{ffffffff}")[0], "\\u{ffffffff}");
});

test("what only looks like an escape is text", () => {
  assert.deepEqual(pieces("\\u{202e}"), [{ text: "\\u{202e}", kind: "", word: false, odd: "" }]);
});

test("a chip is not cut by a word or a token in it", () => {
  assert.deepEqual(texts(pieces("a\\xffb", [[3, 6]], [[1, 5]], [{ start: 2, end: 4, kind: "string" }])), ["a", "\\xff", "b"]);
});

test("the pieces of any line, put together, are the line", () => {
  const letters = ["a", " ", "😀", "é", "\t", "<b>", "&amp;"];
  let seed = 7;
  const random = (/** @type {number} */ n) => (seed = (seed * 48271) % 2147483647) % n;
  for (let round = 0; round < 500; round++) {
    const text = Array.from({ length: random(12) }, () => letters[random(letters.length)]).join("");
    const span = () => {
      const start = random(14);
      return /** @type {[number, number]} */ ([start, start + random(5)]);
    };
    const [start, end] = span();
    const found = pieces(text, [span()], [], [{ start, end, kind: "string" }]);
    assert.equal(texts(found).join(""), text);
    assert.ok(found.every((one) => one.text));
  }
});

test("spans beyond the text, and those that overlap, are no harm", () => {
  assert.deepEqual(texts(pieces("ab", [[1, 99]], [[50, 60]], [{ start: 1, end: 40, kind: "string" }])), ["a", "b"]);
  assert.equal(texts(pieces("abcdef", [[0, 4], [2, 6]], [[0, 3], [1, 2]])).join(""), "abcdef");
});

test("what of a path is written as an escape is a chip, and a backslash of its own is none", () => {
  const drawn = (path) => nameParts(path).map(({ text, odd }) => (odd ? `[${text}]` : text)).join("");
  assert.equal(drawn("src/main.py"), "src/main.py");
  assert.equal(drawn("\\x20"), "[SP]");
  assert.equal(drawn("a\\x20\\x20b/\\u{3000}"), "a[SP][SP]b/[IDSP]");
  assert.equal(drawn("\\u{2800}\\u{200b}\\t\\n"), "[BLANK][ZWSP][TAB][LF]");
  assert.equal(drawn("\\xff\\u{e0041}"), "[\\xff][TAG A]");
  assert.equal(drawn("a\\\\x20"), "a\\\\x20");
  assert.equal(drawn("\\\\\\x20"), "\\\\[SP]");
  assert.deepEqual(nameParts("\\x20")[0].odd, "U+0020, a space");
});
