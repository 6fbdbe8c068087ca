// The API, as the page uses it: /api/v1, JSON, and server-sent events.
import { follow } from "./events.js";

import { BASE, early, forget, HEADER, known, place, read } from "./early.js";

/** What the server said no to, in its words. */
export class Refused extends Error {
  /** @param {number} status @param {{error: string, code: string, hint?: string}} problem */
  constructor(status, problem) {
    super(problem.error);
    this.status = status;
    this.code = problem.code;
    this.hint = problem.hint ?? "";
  }
}

let kept = ""; // where nothing can be stored

/**
 * What a request of this page has to bring: its cookie is sent to every port of this host. This is what a login has told,
 * and only pages of this origin, which has its port, can read it.
 */
const key = () => known() || kept;

/** @param {string} found */
function keep(found) {
  kept = found;
  try {
    localStorage.setItem(place(), found);
  } catch {
    // the browser stores nothing for this page: it is asked to log in when it is loaded again
  }
}

/** Which key there is: nothing is asked before. */
let settled = Promise.resolve();

/** Before anything else of the page. */
export function arrive() {
  settled = settle();
  // A service worker that is registered here is somebody else's, who once had this port: ours has none.
  navigator.serviceWorker?.getRegistrations().then((all) => all.forEach((one) => void one.unregister()), () => {});
}

/** The key that a login has put into the address is taken out of it; and it is kept if it is one: anybody may link here. */
async function settle() {
  const found = /^#k=(\w+)$/.exec(location.hash)?.[1];
  if (!found) return;
  history.replaceState(null, "", location.pathname + location.search);
  const answer = await fetch(BASE + "/me", { headers: { [HEADER]: found }, credentials: "same-origin" }).catch(() => null);
  if (answer?.ok || !key()) keep(found);
}

/** The address of what is asked for without headers. @param {string} path below /api/v1 */
export const keyed = (path) => BASE + path + (path.includes("?") ? "&" : "?") + "k=" + encodeURIComponent(key());

/** By which the server knows an answer again. @type {WeakMap<object, string>} */
const tags = new WeakMap();
/** What was sent of an answer that has no such tag. @type {WeakMap<object, string>} */
const texts = new WeakMap();
/** Answers from before anybody listened. @type {WeakSet<object>} */
const olds = new WeakSet();

/** Whether what an answer says may have changed without a word: told once, to whoever asks again then. @param {any} found */
export const takeOld = (found) => olds.delete(found);

/**
 * @param {string} method @param {string} path below /api/v1
 * @param {any} [body] @param {AbortSignal} [signal]
 * @param {any} [before] an earlier answer to the same: it is the answer again if it would be the same
 * @returns {Promise<any>}
 */
export async function ask(method, path, body, signal, before) {
  await settled;
  /** @type {Record<string, string>} */
  const headers = { accept: "application/json", [HEADER]: key() };
  if (body !== undefined) headers["content-type"] = "application/json";
  const tag = tags.get(before);
  if (tag) headers["if-none-match"] = tag;
  const asked = method === "GET" && !before ? early(path, key()) : undefined;
  let answer;
  let text;
  try {
    [answer, text] = await (asked ?? fetch(BASE + path, {
      method, headers, signal, credentials: "same-origin",
      body: body === undefined ? undefined : JSON.stringify(body),
    }).then(read));
    signal?.throwIfAborted();
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Refused(0, { error: "mudroom serve does not answer", code: "gone", hint: "it may have been ended" });
  }
  if (answer.status === 304 || (answer.ok && before && texts.get(before) === text)) return before;
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    found = { error: text.trim() || answer.statusText, code: answer.status === 401 ? "unauthorized" : "failed" };
  }
  if (!answer.ok) {
    if (answer.status === 401 && headers[HEADER] !== key()) return ask(method, path, body, signal, before); // a login meanwhile
    if (answer.status === 401) tell("over", {});
    throw new Refused(answer.status, found);
  }
  const given = answer.headers?.get("etag");
  if (given) tags.set(found, given);
  else if (found instanceof Object) texts.set(found, text);
  if (asked && found instanceof Object) olds.add(found);
  return found;
}

/** @param {string} path @param {AbortSignal} [signal] @param {any} [before] as for `ask` */
export const get = (path, signal, before) => ask("GET", path, undefined, signal, before);
/** @param {string} path @param {any} [body] */
export const post = (path, body = {}) => ask("POST", path, body);
/** @param {string} path */
export const remove = (path) => ask("DELETE", path);

/** Who serves this. */
export const begin = () => get("/me");

/** @param {Record<string, unknown>} pairs */
export function query(pairs) {
  const found = new URLSearchParams();
  for (const [key, value] of Object.entries(pairs)) {
    if (value !== undefined && value !== null && value !== "") found.set(key, String(value));
  }
  const text = found.toString();
  return text && "?" + text;
}

/** @param {string} project */
export const at = (project) => "/projects/" + encodeURIComponent(project);
/** @param {string} project @param {string} fork */
export const atFork = (project, fork) => `${at(project)}/forks/${encodeURIComponent(fork)}`;

const PAUSE = 2000; // milliseconds until it is asked again how a job is, if nobody has answered

/** @type {Set<(kind: string, data: any) => void>} */
const listeners = new Set();
let connecting = false;

/**
 * Be told what happens. Everything may have changed after "hello" (the connection is new) and "missed". "lost": nothing
 * is told until the next "hello". "over": this browser may not ask any more.
 * @param {(kind: string, data: any) => void} listener
 * @returns {() => void} stop
 */
export function listen(listener) {
  listeners.add(listener);
  if (!connecting) {
    connecting = true;
    settled.then(connect);
  }
  return () => void listeners.delete(listener);
}

function connect() {
  const again = follow(() => new URL(keyed("/events"), location.href).href, (kind, data) => {
    tell(kind, data);
    // What was refused: is it over, or a pause?
    if (kind === "lost" && data.over) get("/me").then(again, (error) => error.status === 401 || again());
  });
  // Another window has logged in: until its key was kept, the cookie of that login went with the key before, and was refused.
  globalThis.addEventListener?.("storage", (event) => void (event.key === place() && again()));
}

/** @param {string} kind @param {any} data */
function tell(kind, data) {
  if (kind !== "hello") forget();
  for (const listener of [...listeners]) listener(kind, data);
}

/**
 * Wait for a job, from its first state to its last.
 * @param {any} job @param {(job: any) => void} [step]
 * @returns {Promise<any>}
 */
export function finished(job, step = () => {}) {
  return new Promise((resolve) => {
    let output = job.output ?? "";
    let over = false; // an answer may be older than an event that has come before it
    const settle = (/** @type {any} */ now) => {
      if (over) return;
      if (now.state === "running") return step({ ...now, output });
      over = true;
      stop();
      resolve(now);
    };
    const stop = listen((kind, data) => {
      if (kind === "output" && data.job === job.id) step({ ...job, output: (output += data.text) });
      else if (kind === "job" && data.id === job.id) settle((job = data));
      else if (kind === "hello" || kind === "missed") look();
    });
    const look = () => void (over || get(`/jobs/${job.id}`).then((now) => settle((job = now)), (error) => {
      if (over) return;
      if (error.code === "gone") return void setTimeout(look, PAUSE); // it goes on without us
      over = true;
      stop();
      resolve({ ...job, state: "failed", problem: { error: "what has come of it is not known", hint: [error.message, error.hint].filter(Boolean).join(": "), code: "lost" } });
    }));
    look();
  });
}
