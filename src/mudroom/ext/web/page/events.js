// Server-sent events. All pages of a browser share one connection: browsers open six connections to a host by HTTP/1.1
// (MDN, EventSource; https://crbug.com/275955, https://bugzil.la/906896), and each page would use one as long as it is
// open.
export const KINDS = ["hello", "missed", "changed", "job", "output"];
export const AGAIN = 2000; // milliseconds until a refused connection is tried again

/** @typedef {(kind: string, data: any) => void} Told "lost": it is broken off; `over`: and the browser does not try it again */

/** @param {string} address @param {Told} told */
export function stream(address, told) {
  const source = new EventSource(address);
  for (const kind of KINDS) {
    source.addEventListener(kind, (event) => told(kind, JSON.parse(/** @type {MessageEvent} */ (event).data)));
  }
  // The browser retries a broken connection, but not a refused one (HTML, 9.2.3).
  source.addEventListener("error", () => told("lost", { over: source.readyState === EventSource.CLOSED }));
  return source;
}

/**
 * Listen, with a connection of its own where pages cannot share one (some mobile browsers).
 * @param {() => string} address as it is by then, at each try: another login has another key @param {Told} told
 * @returns {() => void} try again; where nothing is broken "hello" is told
 */
export function follow(address, told) {
  let again = () => {};
  const alone = () => {
    let source = stream(address(), told);
    again = () => void setTimeout(() => (source.close(), (source = stream(address(), told))), AGAIN);
  };
  if (typeof SharedWorker === "function") again = shared(address, told, alone);
  else alone();
  return () => again();
}

/** @param {() => string} address @param {Told} told @param {() => void} alone @returns {() => void} */
function shared(address, told, alone) {
  const script = new URL("events.worker.js", import.meta.url).href;
  const policy = /** @type {any} */ (globalThis).trustedTypes?.createPolicy("events", { createScriptURL: () => script });
  const worker = new SharedWorker(policy ? policy.createScriptURL("") : script, { type: "module", name: "events" });
  worker.onerror = alone; // the worker could not be loaded
  worker.port.onmessage = ({ data: [kind, data] }) => told(kind, data);
  const ask = () => worker.port.postMessage(address());
  ask();
  return ask;
}
