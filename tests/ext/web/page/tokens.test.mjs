import assert from "node:assert/strict";
import { test } from "node:test";
import hljs from "../../../../src/mudroom/ext/web/page/vendor/highlight.js";
import { byLine, kindOf } from "../../../../src/mudroom/ext/web/page/tokens.js";

const colour = (/** @type {string} */ language, /** @type {string} */ text) =>
  byLine(hljs.highlight(text, { language, ignoreIllegals: true })._emitter, text.split("\n").length);

test("tokens stand where their text is, across lines", () => {
  const text = 'def f(x):\n    """one\n    two < 3"""\n    return 1';
  const found = colour("python", text);
  const lines = text.split("\n");
  const said = found.map((tokens, at) => tokens.map(({ start, end, kind }) => [lines[at].slice(start, end), kind]));
  assert.deepEqual(said[0], [["def", "keyword"], ["f", "title"]]);
  assert.deepEqual(said[2], [["    two < 3\"\"\"", "string"]]);
  assert.deepEqual(said[3], [["return", "keyword"], ["1", "literal"]]);
});

test("what looks like markup is text, in languages within languages too", () => {
  const text = "<p class=\"a\">&lt;</p>\n<script>let x = '</span>';</script>\n<style>a { color: red }</style>";
  const lines = text.split("\n");
  for (const [at, tokens] of colour("xml", text).entries()) {
    let last = 0;
    for (const { start, end, kind } of tokens) {
      assert.ok(start >= last && end > start && end <= lines[at].length);
      assert.match(kind, /^[a-z]+$/);
      last = end;
    }
  }
});

test("a scope that nobody knows has no colour, one below a known one has its colour", () => {
  assert.equal(kindOf("nobody.knows"), "");
  assert.equal(kindOf("title.function.invoke"), "title");
  assert.equal(kindOf("language:css"), "");
});
