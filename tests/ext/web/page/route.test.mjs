// What an address of the page means.
import assert from "node:assert/strict";
import { test } from "node:test";
import { routeOf, toFork, toProject, toTry } from "../../../../src/mudroom/ext/web/page/route.js";

test("addresses of views", () => {
  assert.deepEqual(routeOf(""), { view: "home" });
  assert.deepEqual(routeOf("#/"), { view: "home" });
  assert.deepEqual(routeOf("#/new"), { view: "new" });
  assert.deepEqual(routeOf("#/visit/a.b.localhost%3A8765%2Fx"), { view: "visit", to: "a.b.localhost:8765/x" });
  assert.deepEqual(routeOf("#/p/one"), { view: "project", project: "one" });
  assert.deepEqual(routeOf("#/p/one/"), { view: "project", project: "one" });
  assert.deepEqual(routeOf("#/p/one/watch"), { view: "watch", project: "one" });
  assert.deepEqual(routeOf("#/p/one/f/two"), { view: "review", project: "one", fork: "two" });
  assert.deepEqual(routeOf("#/p/one/f/two/review/YS_-"), { view: "review", project: "one", fork: "two", file: "YS_-" });
  assert.deepEqual(routeOf("#/p/one/try/t1"), { view: "try", project: "one", tried: "t1" });
  assert.deepEqual(routeOf("#/p/one/try/t1/YS_-"), { view: "try", project: "one", tried: "t1", file: "YS_-" });
  assert.deepEqual(routeOf("#/p/one/f/two/conflicts"), { view: "conflicts", project: "one", fork: "two" });
});

test("what is made is understood", () => {
  const odd = "a/b #?%41";
  assert.deepEqual(routeOf(toProject(odd)), { view: "project", project: odd });
  assert.deepEqual(routeOf(toFork(odd, odd, "watch")), { view: "watch", project: odd, fork: odd });
  assert.deepEqual(routeOf(toTry(odd, odd, "YQ")), { view: "try", project: odd, tried: odd, file: "YQ" });
});

test("anything else is nothing", () => {
  for (const hash of ["#/p", "#/p/a/f", "#/p/%E0%A4%A", "#javascript:alert(1)", "#/p/a/f/b/review/../x", "#//evil"]) {
    assert.deepEqual(routeOf(hash), { view: "nothing" }, hash);
  }
});
