// Requests of the first view, sent before its modules are loaded: this module imports nothing, so it runs first.
//
// 1. Only requests are sent that the view would send (by its address, as route.js reads it), with the key of this
//    browser. Each answer is used once.
// 2. An answer may be stale by then: the view asks again. All answers are dropped when the server reports a change.

export const BASE = "api/v1";
export const HEADER = "x-mudroom-csrf";

/** The name under which the key is stored: servers on this origin have different paths. */
export const place = () => "mudroom-key " + new URL("./", location.href).pathname;

/** @typedef {[answer: Response, text: string]} Answer */
/** @type {Map<string, {key: string, answer: Promise<Answer>}>} */
const asked = new Map();

/** An answer with all that it says: as long as it is not read it has a connection of its own. @param {Response} answer @returns {Promise<Answer>} */
export const read = async (answer) => [answer, await answer.text()];

/** The answer to what has been asked already. @param {string} path below /api/v1 @param {string} key */
export function early(path, key) {
  const found = asked.get(path);
  asked.delete(path);
  return found?.key === key ? found.answer : undefined;
}

export const forget = () => asked.clear();

/** The requests of the first view, below /api/v1. @param {string} hash of its address @returns {string[]} */
export function first(hash) {
  if (/^(#\/?)?$/.test(hash)) return ["/me", "/projects"];
  const found = /^#\/p\/([^/]+)(?:\/f\/([^/]+)(?:\/review(?:\/[\w-]+)?)?)?$/.exec(hash);
  if (!found) return [];
  try {
    const [project, fork] = found.slice(1).map((part) => part && encodeURIComponent(decodeURIComponent(part))); // as a view encodes it
    const at = "/projects/" + project;
    return ["/me", at, ...(fork ? [`${at}/forks/${fork}/changes`] : [])];
  } catch {
    return []; // not percent-encoded text
  }
}

/** @param {string} key */
function begin(key) {
  for (const path of first(location.hash)) {
    const answer = fetch(BASE + path, { headers: { accept: "application/json", [HEADER]: key }, credentials: "same-origin" }).then(read);
    answer.catch(() => {}); // reported where the answer is used
    asked.set(path, { key, answer });
  }
}

/** The key of the last login; empty: there is none, or the browser denies access. */
export function known() {
  try {
    return localStorage.getItem(place()) ?? "";
  } catch {
    return "";
  }
}

const key = known();
if (key) begin(key);
