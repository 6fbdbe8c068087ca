// What is asked before the page's modules are here: only what a view asks itself, given away once, and never an old answer.
import assert from "node:assert/strict";
import { test } from "node:test";

const HERE = "http://127.0.0.1:1/";
/** @type {[string, any][]} */
const asked = [];
let answers = 0;
globalThis.location = /** @type {any} */ ({ href: HERE + "#/p/a-1/f/x/review", hash: "#/p/a-1/f/x/review" });
globalThis.localStorage = /** @type {any} */ ({ getItem: (/** @type {string} */ name) => (name === "mudroom-key /" ? "k1" : null) });
globalThis.fetch = /** @type {any} */ (async (/** @type {string} */ path, /** @type {any} */ how) => {
  asked.push([path, how.headers]);
  if (path.endsWith("/projects/a-1")) throw new TypeError("nobody there");
  const number = ++answers;
  if (how.headers["if-none-match"] === '"t1"') return { ok: false, status: 304, text: async () => "", headers: new Headers() };
  if (path.endsWith("/short")) return { ok: true, status: 200, text: async () => (number % 3 ? "[1]" : "[2]"), headers: new Headers() };
  return { ok: true, status: 200, text: async () => JSON.stringify({ path, number }), headers: new Headers({ etag: '"t1"' }) };
});
const { early, first, forget } = await import("../../../../src/mudroom/ext/web/page/early.js");
const { at, atFork, get, takeOld } = await import("../../../../src/mudroom/ext/web/page/api.js");
const { ROUTES, routeOf } = await import("../../../../src/mudroom/ext/web/page/route.js");

test("what a view shows first", () => {
  const home = ["/me", "/projects"];
  for (const hash of ["", "#", "#/"]) assert.deepEqual(first(hash), home);
  assert.deepEqual(first("#/p/a%2Fb"), ["/me", "/projects/a%2Fb"]);
  assert.deepEqual(first("#/p/a/f/x/watch"), []);
  assert.deepEqual(first("#/p/a/f/x/conflicts"), []);
  for (const file of ["", "/Zm9v"]) assert.deepEqual(first("#/p/a/f/x/review" + file), ["/me", "/projects/a", "/projects/a/forks/x/changes"]);
  assert.deepEqual(first("#/p/x%2Dy"), ["/me", "/projects/x-y"]);
  for (const hash of ["#k=secret", "#/p/%E0%A4%A", "#/new", "#/visit/a.b.localhost%3A1%2F", "#/p/", "#/p/a/../b", "elsewhere"]) assert.deepEqual(first(hash), []);
});

const ASKED = /** @type {Record<string, (project: string, fork: string) => string[]>} */ ({
  home: () => ["/me", "/projects"],
  project: (project) => ["/me", at(project)],
  review: (project, fork) => ["/me", at(project), atFork(project, fork) + "/changes"],
});
const PARTS = ["a", "x-y", "x%2Dy", "a%2Fb", "%C3%A9", "%20", "a+b", "!'()*", "%E0%A4%A", ""];
const ADDRESSES = ["", "#", "#/", "#/new", "#/visit/a.b.localhost%3A1%2F", "#/elsewhere", "#/p/FORK/f", ...PARTS.flatMap((part) => ["", "/watch", "/other", "/try/t1", "/try/t1/Zm9v", ...["", "/review", "/review/Zm9v", "/review/a.b",
  "/review/", "/conflicts", "/watch"].map((rest) => "/f/FORK" + rest)].map((rest) => `#/p/${part}${rest}`))].flatMap((hash) => PARTS.map((part) => hash.replace("FORK", () => part)));

test("it is what the view at an address asks, in the spelling of the view", () => {
  for (const hash of ADDRESSES) {
    const { view, project = "", fork = "" } = routeOf(hash);
    assert.deepEqual(first(hash), ASKED[view]?.(project, fork) ?? [], hash);
  }
  const unmet = ROUTES.filter(([pattern]) => !ADDRESSES.some((hash) => pattern.test(hash.slice(1))));
  assert.deepEqual(unmet, [], "an address that no test has");
});

test("it has been asked with the key of this browser", () => {
  assert.deepEqual(asked.map(([path]) => path), ["api/v1/me", "api/v1/projects/a-1", "api/v1/projects/a-1/forks/x/changes"]);
  assert.ok(asked.every(([, headers]) => headers["x-mudroom-csrf"] === "k1"));
});

test("an answer is given away once, and then it is asked for", async () => {
  const before = asked.length;
  const found = await get("/me");
  assert.equal(asked.length, before);
  assert.equal(found.path, "api/v1/me");
  assert.deepEqual([takeOld(found), takeOld(found)], [true, false]);
  const later = await get("/me");
  assert.notEqual(later.number, found.number);
  assert.equal(takeOld(later), false);
  assert.equal(asked.length, before + 1);
});

test("one that failed has failed", async () => {
  await assert.rejects(get("/projects/a-1"), { code: "gone" });
});

test("another key has no answer, nor is one kept that was forgotten", async () => {
  const path = "/projects/a-1/forks/x/changes";
  assert.equal(early(path, "k2"), undefined);
  assert.equal(early(path, "k1"), undefined); // it was somebody else's, and is gone
  forget();
  assert.equal(early("/me", "k1"), undefined);
});

test("what would be the same again is not sent again", async () => {
  const found = await get("/long");
  assert.equal(await get("/long", undefined, found), found);
  assert.equal(asked.at(-1)?.[1]["if-none-match"], '"t1"');
  assert.notEqual(await get("/long"), found);
  assert.equal(asked.at(-1)?.[1]["if-none-match"], undefined);
});

test("a short answer, which has no tag, is the one before if it says the same", async () => {
  const found = [];
  for (let at = 0; at < 7; at++) found.push(await get("/short", undefined, found.at(-1)));
  const changes = found.filter((one, at) => at && one !== found[at - 1]);
  assert.deepEqual(found.map(([one]) => one).filter((one, at, all) => at && one !== all[at - 1]), changes.map(([one]) => one));
  assert.ok(changes.length > 1 && changes.length < 6);
});
