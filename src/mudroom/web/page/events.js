// What the server tells. All pages of a browser hear it by one connection: to a host it opens six by HTTP/1.1 (MDN, EventSource;
// https://crbug.com/275955, https://bugzil.la/906896: it stays so), and each page would hold one for as long as it is open.
export const KINDS = ["hello", "missed", "changed", "job", "output"];
export const AGAIN = 2000; // milliseconds until a connection that was refused is tried anew

/** @typedef {(kind: string, data: any) => void} Told "lost": it is broken off; `over`: and the browser does not try it again */

/** @param {string} address @param {Told} told */
export function stream(address, told) {
  const source = new EventSource(address);
  for (const kind of KINDS) {
    source.addEventListener(kind, (event) => told(kind, JSON.parse(/** @type {MessageEvent} */ (event).data)));
  }
  // What is broken off is tried again by the browser; what is refused is not (HTML, 9.2.3).
  source.addEventListener("error", () => told("lost", { over: source.readyState === EventSource.CLOSED }));
  return source;
}

/**
 * Where pages cannot share (some browsers of phones), each has its own.
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
  worker.onerror = alone; // it could not be loaded
  worker.port.onmessage = ({ data: [kind, data] }) => told(kind, data);
  const ask = () => worker.port.postMessage(address());
  ask();
  return ask;
}
