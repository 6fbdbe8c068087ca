// One connection for all pages of a browser, over logins and refusals.
import assert from "node:assert/strict";
import { test } from "node:test";

/** Connections, in the order in which they were begun. @type {any[]} */
const begun = [];
class Source {
  static OPEN = 1;
  static CLOSED = 2;
  readyState = 0;
  /** @type {Record<string, (event: any) => void>} */
  told = {};
  constructor(/** @type {string} */ address) { begun.push(Object.assign(this, { address })); }
  addEventListener(/** @type {string} */ kind, /** @type {any} */ listener) { this.told[kind] = listener; }
  open() { this.readyState = Source.OPEN; this.told.hello({ data: "{}" }); }
  refuse() { this.readyState = Source.CLOSED; this.told.error({}); }
}
globalThis.EventSource = /** @type {any} */ (Source);

/** A worker of its own, and how a page comes to it: what that one is told. */
async function worker(/** @type {string} */ name) {
  begun.length = 0;
  await import("../../../../src/mudroom/ext/web/page/events.worker.js?" + name);
  const connect = /** @type {any} */ (globalThis).onconnect;
  return (/** @type {string} */ address) => {
    const port = { told: /** @type {string[]} */ ([]), onmessage: (/** @type {any} */ _said) => {}, postMessage: (/** @type {any} */ [kind]) => void port.told.push(kind) };
    connect({ ports: [port] });
    const say = (/** @type {string} */ said) => port.onmessage({ data: said });
    say(address);
    return { told: port.told, say };
  };
}
const addresses = () => begun.map((one) => one.address);

test("a page after another login asks with the key of that one, and all hear it", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const come = await worker("login");
  const first = come("/events?k=1");
  begun[0].open();
  const second = come("/events?k=2");
  assert.deepEqual([first.told, second.told, addresses()], [["hello"], ["hello"], ["/events?k=1"]]);
  begun[0].refuse(); // the server was started anew, and knows the cookie of the second login
  assert.deepEqual([first.told.at(-1), second.told.at(-1)], ["lost", "lost"]);
  first.say("/events?k=2"); // which is the browser's key now
  second.say("/events?k=2");
  context.mock.timers.tick(2000);
  assert.deepEqual(addresses(), ["/events?k=1", "/events?k=2"]);
  begun[1].open();
  assert.deepEqual([first.told.at(-1), second.told.at(-1)], ["hello", "hello"]);
});

test("what is refused is not tried again until a page asks", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const come = await worker("refused");
  const page = come("/events?k=1");
  begun[0].refuse();
  context.mock.timers.tick(3_600_000);
  assert.deepEqual(addresses(), ["/events?k=1"]);
  page.say("/events?k=1");
  page.say("/events?k=1");
  context.mock.timers.tick(3_600_000);
  assert.equal(begun.length, 2, "once");
  begun[1].refuse();
  come("/events?k=3");
  context.mock.timers.tick(2000);
  assert.deepEqual(addresses().slice(2), ["/events?k=3"]);
});
