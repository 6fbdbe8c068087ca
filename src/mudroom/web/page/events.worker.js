// One for all pages of a browser (HTML, shared workers): its name is the address of the stream, and each hears what comes.
import { AGAIN, stream } from "./events.js";

/** @type {MessagePort[]} Of pages that are gone, too: nobody is told when one goes, and what it is sent is dropped. */
const pages = [];
/** @type {EventSource | null} */
let source = null;
const ADDRESS = /** @type {any} */ (globalThis).name;
let waiting = 0;

function connect() {
  waiting = 0;
  source = stream(ADDRESS, (kind, data) => pages.forEach((page) => page.postMessage([kind, data])));
}

/** A page asks for another try; several may. */
function again() {
  if (source?.readyState === EventSource.CLOSED && !waiting) waiting = setTimeout(connect, AGAIN);
}

/** @type {any} */ (globalThis).onconnect = (/** @type {MessageEvent} */ { ports: [page] }) => {
  pages.push(page);
  page.onmessage = again;
  if (!source) connect();
  else if (source.readyState === EventSource.OPEN) page.postMessage(["hello", {}]);
  else if (source.readyState === EventSource.CLOSED) page.postMessage(["lost", { over: true }]);
};
