// What needs the user stands first: questions, then conflicts, then finished agents.
import assert from "node:assert/strict";
import { test } from "node:test";

import { needsOf, runningOf } from "../../../../src/mudroom/ext/web/page/needs.js";

const notice = (kind, fork, more = {}) => ({ kind, fork, agent: "claude", files: 3, badge: {}, exit_code: 0, ...more });
const project = (id, notices = [], more = {}) => ({ id, path: "/" + id, notices, questions: 0, running: 0, ...more });

test("the most urgent comes first, over all projects", () => {
  const needs = needsOf([
    project("a", [notice("finished", "f1"), notice("running", "r"), notice("conflict", "c", { files: 1 })]),
    project("b", [notice("cut off", "x"), notice("damaged", "d")], { questions: 2 }),
  ]);
  assert.deepEqual(needs.map((one) => one.kind), ["question", "damaged", "conflict", "cut off", "finished"]);
  assert.deepEqual(needs.map((one) => one.text), [
    "2 questions of agents", "damaged: it cannot be read", "1 file in conflict with the project", "its last command was interrupted", "3 changed files",
  ]);
});

test("a failed command is said", () => {
  assert.equal(needsOf([project("a", [notice("finished", "f", { exit_code: 2 })])])[0].text, "3 changed files, exit code 2");
});

test("a failed verification comes before what is finished, and says with what", () => {
  const needs = needsOf([project("a", [notice("finished", "f"), notice("unverified", "u", { exit_code: 1 }), notice("cut off", "x")])]);
  assert.deepEqual(needs.map((one) => one.kind), ["unverified", "cut off", "finished"]);
  assert.equal(needs[0].text, "3 changed files; not applied, for this failed with exit code 1:");
});

test("who waits longest comes first of a kind", () => {
  const needs = needsOf([project("a", [notice("finished", "new", { ended: 9 })]), project("b", [notice("finished", "old", { ended: 2 })])]);
  assert.deepEqual(needs.map((one) => one.notice.fork), ["old", "new"]);
});

test("nothing needs anybody", () => {
  assert.deepEqual(needsOf([project("a", [notice("running", "r")])]), []);
  assert.deepEqual(runningOf([project("a", [notice("running", "r")], { running: 1 }), project("b")]).map((one) => one.notices.length), [1]);
});
