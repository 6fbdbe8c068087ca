// What needs the user stands first, in the order that the server gives (ext/decisions/queue.py).
import assert from "node:assert/strict";
import { test } from "node:test";

import { needsOf, runningOf } from "../../../../src/mudroom/ext/web/page/needs.js";

const notice = (kind, fork, order, more = {}) => ({ kind, fork, order, agent: "claude", files: 3, badge: {}, exit_code: 0, ...more });
const project = (id, notices = [], more = {}) => ({ id, path: "/" + id, notices, questions: 0, running: 0, ...more });

test("the most urgent comes first, over all projects, and of a kind who waits longest", () => {
  const needs = needsOf([
    project("a", [notice("conflict", "c", [2, 0, 7]), notice("finished", "new", [6, 0, 9]), notice("running", "r", [7, 0, 1])]),
    project("b", [notice("question", "q", [0, 1, 4]), notice("question", "waits", [0, 0, 5]), notice("finished", "old", [6, 0, 2])]),
  ]);
  assert.deepEqual(needs.map((one) => one.notice.fork), ["waits", "q", "c", "old", "new"]);
});

test("nothing needs anybody", () => {
  assert.deepEqual(needsOf([project("a", [notice("running", "r", [7, 0, 0])])]), []);
  assert.deepEqual(runningOf([project("a", [notice("running", "r", [7, 0, 0])], { running: 1 }), project("b")]).map((one) => one.notices.length), [1]);
});
