// A shared worker (HTML) with one connection for all pages of a browser.
//
// A page passes its URL when it connects, and at each retry. The last URL counts: it has the key of the last login, and
// a connection with an older key is refused when it reconnects. A refused connection is retried only when a page asks
// for it: a page that is logged out does not.
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
