// A job that is waited for: what is told of it, and what is asked, may come in any order.
import assert from "node:assert/strict";
import { test } from "node:test";

/** @type {Record<string, (event: any) => void>} */
const told = {};
/** @type {(job: any) => void} */
let answer = () => {};
/** @type {(status: number) => void} */
let refuse = () => {};
globalThis.location = /** @type {any} */ ({ href: "http://127.0.0.1/" });
const soon = () => new Promise((resolve) => setImmediate(resolve));
globalThis.EventSource = /** @type {any} */ (class {
  addEventListener(/** @type {string} */ kind, /** @type {any} */ listener) { told[kind] = listener; }
});
globalThis.fetch = /** @type {any} */ (() => new Promise((resolve, reject) => {
  refuse = (status) => (status ? resolve({ ok: false, status, text: async () => JSON.stringify({ error: "no such job", code: "not-found" }) }) : reject(new TypeError("Failed to fetch")));
  answer = (job) => resolve({ ok: true, status: 200, text: async () => JSON.stringify(job) });
}));
const { finished } = await import("../../../../src/mudroom/ext/web/page/api.js");

const begun = { id: "j", state: "running", output: "" };

test("an answer that an event has overtaken changes nothing", async () => {
  /** @type {any[]} */
  const steps = [];
  const ended = finished(begun, (job) => steps.push(job.state));
  await soon();
  told.job({ data: JSON.stringify({ ...begun, state: "done" }) });
  assert.equal((await ended).state, "done");
  answer(begun);
  await soon();
  assert.deepEqual(steps, []);
});

test("an answer that comes first is the end, too", async () => {
  const ended = finished(begun);
  await soon();
  answer({ ...begun, state: "failed" });
  assert.equal((await ended).state, "failed");
});

test("a request that had no answer is no end", async () => {
  const ended = finished(begun);
  await soon();
  refuse(0);
  await soon();
  told.job({ data: JSON.stringify({ ...begun, state: "done" }) });
  assert.equal((await ended).state, "done");
});

test("of a job that nobody knows any more it is not known what has come of it", async () => {
  const ended = finished(begun);
  await soon();
  refuse(0);
  await soon();
  told.hello({ data: "{}" });
  await soon();
  refuse(404);
  const { state, problem } = await ended;
  assert.deepEqual([state, problem.code, problem.error], ["failed", "lost", "the outcome is not known"]);
});
