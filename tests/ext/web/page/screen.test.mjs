import assert from "node:assert/strict";
import { test } from "node:test";
import { Screen, printable, styled } from "../../../../src/mudroom/ext/web/page/screen.js";

/** What is seen, line by line, after all of these were printed one after the other. */
function seen(...parts) {
  const screen = new Screen();
  for (const part of parts) screen.write(part);
  return screen.lines.map((line) => line.runs.map((run) => (run.style ? `{${run.style}:${run.text}}` : run.text)).join(""));
}

test("lines, and what overwrites them", () => {
  assert.deepEqual(seen("one\ntwo"), ["one", "two"]);
  assert.deepEqual(seen("10%\r20%\r100%\n"), ["100%", ""]);
  assert.deepEqual(seen("abcdef\rxy"), ["xycdef"]);
  assert.deepEqual(seen("abcdef\r\u001b[Kxy"), ["xy"]);
  assert.deepEqual(seen("abcdef\u001b[2K"), [""]);
  assert.deepEqual(seen("ab\b\bX\b\b\b\bY"), ["Yb"]);
  assert.deepEqual(seen("a\tb\r\n"), ["a       b", ""]);
});

test("colours end where they are ended", () => {
  assert.deepEqual(seen("\u001b[31mred\u001b[0m plain"), ["{sgr-31:red} plain"]);
  assert.deepEqual(seen("\u001b[1;92mok\u001b[22m.\u001b[39m."), ["{sgr-bold sgr-32:ok}{sgr-32:.}."]);
  assert.deepEqual(seen("\u001b[38;5;196mx\u001b[38;2;1;2;31my\u001b[48;5;31mz"), ["xyz"]);
  assert.equal(styled("sgr-31", "34"), "sgr-34");
  assert.equal(styled("", "<script>"), "");
});

test("a sequence that comes in pieces is one", () => {
  assert.deepEqual(seen("\u001b", "[3", "1mred"), ["{sgr-31:red}"]);
  assert.deepEqual(seen("a\u001b]0;a tit", "le\u001b", "\\b"), ["ab"]);
});

test("other sequences do nothing, and other control characters are shown", () => {
  assert.deepEqual(seen("a\u001b[2J\u001b[10;10H\u001b[?25l\u001b]8;;http://evil.example\u0007b\u001b(Bc\u001bPq\u001b\\d"), ["abcd"]);
  assert.deepEqual(seen("a\u0000\u0007\u202eb\u009bc"), ["a\\x00\\x07\\u{202e}b\\u{9b}c"]);
  assert.equal(printable("\u2066x\u200b"), "\\u{2066}x\\u{200b}");
  assert.deepEqual(seen("<img src=x onerror=alert(1)>"), ["<img src=x onerror=alert(1)>"]);
});

test("what never ends is not waited for", () => {
  const screen = new Screen();
  screen.write("\u001b]" + "x".repeat(5000));
  assert.ok(screen.rest.length < 5000);
});

test("so many lines are kept, and so much of each", () => {
  const screen = new Screen();
  screen.write(Array.from({ length: 20_000 }, (_one, number) => `${number}\n`).join(""));
  assert.equal(screen.lines.length, 5000);
  assert.equal(screen.left, 20_001 - 5000);
  assert.equal(screen.lines.at(-2)?.runs[0].text, "19999");
  for (let number = 0; number < 50; number++) screen.write("more\n");
  assert.equal(screen.lines.length, 5000);
  const [long] = seen("y".repeat(100_000));
  assert.equal(long.length, 4001);
  assert.ok(long.endsWith("…"));
});

test("a gap is a line of its own", () => {
  const screen = new Screen();
  screen.write("half \u001b[31mof");
  screen.gap("… 5 MB");
  screen.write("after");
  assert.deepEqual(screen.lines.map((line) => line.runs.map((run) => run.text).join("")), ["half of", "… 5 MB", "after"]);
  assert.equal(screen.lines[2].runs[0].style, "");
});
