// The API, as the page uses it: /api/v1, JSON, and server-sent events.
import { follow } from "./events.js";

import { BASE, early, forget, HEADER, known, place, read } from "./early.js";

/** An error answer of the server, with its message. */
export class Refused extends Error {
  /** @param {number} status @param {{error: string, code: string, hint?: string}} problem */
  constructor(status, problem) {
    super(problem.error);
    this.status = status;
    this.code = problem.code;
    this.hint = problem.hint ?? "";
  }
}

let kept = ""; // where the browser stores no data

/** The page's key, which every request has to bring: browsers send the cookie to every port of this host. It comes
 * with a login, and only pages of this origin, which includes the port, can read it. */
const key = () => known() || kept;

/** @param {string} found */
function keep(found) {
  kept = found;
  try {
    localStorage.setItem(place(), found);
  } catch {
    // the browser stores no data for this page: after a reload it has to log in again
  }
}

/** Resolves when the key is known: no request is sent before. */
let settled = Promise.resolve();

/** Call before all other code of the page. @param {(one: ServiceWorkerRegistration) => boolean} isOurs */
export function arrive(isOurs) {
  settled = settle();
  // Any other service worker that is registered here belongs to a former user of this port.
  navigator.serviceWorker?.getRegistrations().then((all) => all.forEach((one) => isOurs(one) || void one.unregister()), () => {});
}

/** Take the key of a login out of the address, and keep it if it is valid: any site may link here. */
async function settle() {
  const found = /^#k=(\w+)$/.exec(location.hash)?.[1];
  if (!found) return;
  history.replaceState(null, "", location.pathname + location.search);
  const answer = await fetch(BASE + "/me", { headers: { [HEADER]: found }, credentials: "same-origin" }).catch(() => null);
  if (answer?.ok || !key()) keep(found);
}

/** A URL for requests without headers, with the key. @param {string} path below /api/v1 */
export const keyed = (path) => BASE + path + (path.includes("?") ? "&" : "?") + "k=" + encodeURIComponent(key());

/** Entity tags of answers. @type {WeakMap<object, string>} */
const tags = new WeakMap();
/** Texts of answers without an entity tag. @type {WeakMap<object, string>} */
const texts = new WeakMap();
/** Answers that were requested before the event stream was open. @type {WeakSet<object>} */
const olds = new WeakSet();

/** Whether an answer may be stale without an event; true once for each answer. @param {any} found */
export const takeOld = (found) => olds.delete(found);

/**
 * @param {string} method @param {string} path below /api/v1
 * @param {any} [body] @param {AbortSignal} [signal]
 * @param {any} [before] an earlier answer to the same request: returned if the answer has not changed
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

/** Ask for the version and the roots of the server. */
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

const PAUSE = 2000; // milliseconds until the state of a job is asked again, if there was no answer

/** @type {Set<(kind: string, data: any) => void>} */
const listeners = new Set();
let connecting = false;

/**
 * Listen to events. After "hello" (a new connection) and "missed" everything may have changed. "lost": no events until
 * the next "hello". "over": this browser is logged out.
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
    // refused: is the login over, or the server busy?
    if (kind === "lost" && data.over) get("/me").then(again, (error) => error.status === 401 || again());
  });
  // Another window has logged in. Until it stored its key, our requests had the new cookie with the old key, and were
  // refused.
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
    let over = false; // an answer may be older than an event that arrived before it
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
      if (error.code === "gone") return void setTimeout(look, PAUSE); // the job goes on without us
      over = true;
      stop();
      resolve({ ...job, state: "failed", problem: { error: "the outcome is not known", hint: [error.message, error.hint].filter(Boolean).join(": "), code: "lost" } });
    }));
    look();
  });
}
