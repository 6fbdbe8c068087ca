// One for all pages of a browser (HTML, shared workers): each hears what comes.
//
// A page says the address that it knows when it comes, and for each other try. The last one said counts: it has the key of
// the last login, and a connection that was begun with another one is refused when it breaks off. What is refused is tried
// again only if a page asks for it: one that may not ask any more does not.
import { AGAIN, stream } from "./events.js";

/** @type {MessagePort[]} Of pages that are gone, too: nobody is told when one goes, and what it is sent is dropped. */
const pages = [];
/** @type {EventSource | null} */
let source = null;
let address = "";
let waiting = 0;

function connect() {
  waiting = 0;
  source = stream(address, (kind, data) => pages.forEach((page) => page.postMessage([kind, data])));
}

/** @param {MessagePort} page @param {string} said */
function asked(page, said) {
  address = said;
  if (!source) connect();
  else if (source.readyState === EventSource.OPEN) page.postMessage(["hello", {}]);
  else if (source.readyState === EventSource.CLOSED && !waiting) waiting = setTimeout(connect, AGAIN);
}

/** @type {any} */ (globalThis).onconnect = (/** @type {MessageEvent} */ { ports: [page] }) => {
  pages.push(page);
  page.onmessage = ({ data }) => asked(page, data);
};
