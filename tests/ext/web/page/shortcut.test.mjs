// What a key press means: the table is unambiguous, and typing is typing.
import assert from "node:assert/strict";
import { test } from "node:test";
import { meant, named, SCOPES, SHORTCUTS, types } from "../../../../src/mudroom/ext/web/page/shortcut.js";

const BODY = { tag: "BODY" };

test("a key means one thing in a scope", () => {
  const pairs = SHORTCUTS.flatMap(({ scope, keys }) => keys.map((key) => `${scope} ${key}`));
  assert.equal(new Set(pairs).size, pairs.length);
  for (const { scope, what } of SHORTCUTS) assert.ok(scope in SCOPES && what);
});

test("a key counts in its scope only", () => {
  assert.equal(meant({ key: "j" }, BODY, "review")?.name, "next");
  assert.equal(meant({ key: "j" }, BODY, "page"), null);
  assert.equal(meant({ key: "ArrowUp" }, BODY, "review")?.name, "previous");
});

test("keys of the browser are left to it", () => {
  for (const held of ["ctrlKey", "altKey", "metaKey", "isComposing"]) {
    assert.equal(meant({ key: "a", [held]: true }, BODY, "review"), null);
  }
});

test("nothing counts while somebody types", () => {
  const typing = [{ tag: "INPUT", type: "search" }, { tag: "INPUT" }, { tag: "TEXTAREA" }, { tag: "SELECT" }, { tag: "DIV", editable: true }];
  for (const target of typing) {
    assert.ok(types(target));
    assert.equal(meant({ key: "j" }, target, "review"), null);
  }
  assert.ok(!types({ tag: "INPUT", type: "checkbox" }));
});

test("space and enter belong to what has the keyboard", () => {
  for (const tag of ["BUTTON", "A", "SUMMARY"]) {
    assert.equal(meant({ key: " " }, { tag }, "review"), null);
    assert.equal(meant({ key: "Enter" }, { tag }, "review"), null);
    assert.equal(meant({ key: "j" }, { tag }, "review")?.name, "next");
  }
  assert.equal(meant({ key: " " }, BODY, "review")?.name, "looked");
});

test("keys are called as they are printed", () => {
  assert.deepEqual(["A", "a", " ", "ArrowDown", "/"].map(named), ["Shift A", "a", "Space", "↓", "/"]);
});
