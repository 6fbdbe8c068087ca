// What the first view shows, asked for before its modules are here: this one imports nothing, so it runs first.
//
// 1. Nothing is asked that the view does not ask itself (by its address, as route.js reads it), with the key that this browser has; each answer is given away once.
// 2. It may be an old one by then: who takes it asks again. None is kept when the server tells that something has changed.

export const BASE = "api/v1";
export const HEADER = "x-mudroom-csrf";

/** Where the key is kept: others of this origin have other paths. */
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

/** What a view shows first: below /api/v1. @param {string} hash of its address @returns {string[]} */
export function first(hash) {
  if (/^(#\/?)?$/.test(hash)) return ["/me", "/projects"];
  const found = /^#\/p\/([^/]+)(?:\/f\/([^/]+)(?:\/review(?:\/[\w-]+)?)?)?$/.exec(hash);
  if (!found) return [];
  try {
    const [project, fork] = found.slice(1).map((part) => part && encodeURIComponent(decodeURIComponent(part))); // as a view spells it
    const at = "/projects/" + project;
    return ["/me", at, ...(fork ? [`${at}/forks/${fork}/changes`] : [])];
  } catch {
    return []; // it is not percent-encoded text
  }
}

/** @param {string} key */
function begin(key) {
  for (const path of first(location.hash)) {
    const answer = fetch(BASE + path, { headers: { accept: "application/json", [HEADER]: key }, credentials: "same-origin" }).then(read);
    answer.catch(() => {}); // who wants it is told
    asked.set(path, { key, answer });
  }
}

/** The key that a login has left; empty: there is none, or it cannot be had. */
export function known() {
  try {
    return localStorage.getItem(place()) ?? "";
  } catch {
    return "";
  }
}

const key = known();
if (key) begin(key);
