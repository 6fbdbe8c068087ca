// The waiting questions, shared by all parts of the page: loaded when a queue rings, and announced by the title, a
// sound or a desktop notification, as the user wants.
import { get, listen } from "./api.js";
import { useEffect, useState } from "./html.js";
import { ANSWERED } from "./tables.js";

const LOOK = 5000; // milliseconds: there is no event when a waiter gives up

/**
 * @typedef {{id: string, project: string, project_path: string, kind: "command" | "host", state: string, asked: number,
 *   waiting: boolean, fork: string, agent: string, what: string, why: string, cwd: string, terms: string[], files: string[],
 *   note: string, can_keep: boolean, allow_rule: string, deny_rule: string, hour_rule: string, holds_until: number, offers: {rule: string, words: string, allows: boolean, hosts: string[]}[],
 *   by: string, reason: string, until: number,
 *   ended: number, kept: boolean, used: boolean}} Question
 * @typedef {{waiting: Question[], recent: Question[], remarks: string[], problem: string, loaded: boolean}} Known
 */

/** @param {Question} one */
export const keyOf = (one) => `${one.project}/${one.id}`;

/** @type {Known} */
let known = { waiting: [], recent: [], remarks: [], problem: "", loaded: false };
/** @type {Set<(known: Known) => void>} */
const watchers = new Set();
let asking = false;
let again = false;

/** The questions, for components. @returns {Known} */
export function useQuestions() {
  const [now, setNow] = useState(known);
  useEffect(() => {
    begin();
    watchers.add(setNow);
    setNow(known);
    return () => void watchers.delete(setNow);
  }, []);
  return now;
}

/** Load the questions. Requests do not overlap; events that arrive meanwhile cause another one. */
export async function look() {
  if (asking) return void (again = true);
  asking = true;
  try {
    do {
      again = false;
      const found = await get("/questions?ended=true");
      const is = (/** @type {Question} */ one) => one.state === "waiting";
      settle({ waiting: found.questions.filter(is), recent: found.questions.filter((/** @type {Question} */ one) => !is(one)), remarks: found.remarks, problem: "", loaded: true });
    } while (again);
  } catch (error) {
    settle({ ...known, problem: error instanceof Error ? error.message : String(error) });
  } finally {
    asking = false;
  }
}

let begun = false;

function begin() {
  if (begun) return;
  begun = true;
  listen((kind, data) => {
    if (kind === "hello" || kind === "missed" || (kind === "changed" && data.what === "questions")) look();
  });
  setInterval(() => known.waiting.length && look(), LOOK);
  new MutationObserver(titled).observe(document.head, { childList: true, subtree: true, characterData: true });
  look();
}

/** @param {Known} now */
function settle(now) {
  if (JSON.stringify(now) === JSON.stringify(known)) return;
  const before = new Set(known.waiting.map(keyOf));
  const news = known.loaded ? now.waiting.filter((one) => !before.has(keyOf(one))) : [];
  known = now;
  titled();
  if (news.length) alarm(news);
  for (const tell of [...watchers]) tell(now);
}

/** The title has the number of waiting questions, whatever view sets it. */
function titled() {
  const plain = document.title.replace(/^\(\d+\) /, "");
  const wanted = known.waiting.length ? `(${known.waiting.length}) ${plain}` : plain;
  if (document.title !== wanted) document.title = wanted;
}

// --- announcements ---

/** The setting in this browser; off by default. @param {"sound" | "desktop"} what */
export function wants(what) {
  try {
    return localStorage.getItem("mudroom.decide." + what) === "on";
  } catch {
    return false; // the browser may deny storage
  }
}

/** @param {"sound" | "desktop"} what @param {boolean} on */
export function want(what, on) {
  try {
    localStorage.setItem("mudroom.decide." + what, on ? "on" : "off");
  } catch {
    return;
  }
}

/** Ask for permission; browsers require a click before. */
export async function mayNotify() {
  if (!("Notification" in window)) return false;
  return (await Notification.requestPermission()) === "granted";
}

/** @param {Question[]} news */
function alarm(news) {
  if (wants("sound")) beep();
  if (!wants("desktop") || !document.hidden || !("Notification" in window) || Notification.permission !== "granted") return;
  for (const one of news) {
    const note = new Notification(headOf(one), { body: one.what.slice(0, 200), tag: keyOf(one) });
    note.onclick = () => (window.focus(), note.close());
  }
}

/** Two short notes. A browser without a click so far stays silent, and never reports their end. */
export function beep() {
  const audio = new AudioContext();
  const gain = audio.createGain();
  gain.gain.value = 0.08;
  gain.connect(audio.destination);
  [660, 880].forEach((frequency, at) => {
    const tone = audio.createOscillator();
    tone.frequency.value = frequency;
    tone.connect(gain);
    tone.start(audio.currentTime + at * 0.16);
    tone.stop(audio.currentTime + at * 0.16 + 0.12);
  });
  setTimeout(() => audio.close(), 1000);
}

/** The question in one line. @param {Question} one */
export function headOf(one) {
  const who = one.agent || "A command of yours";
  return one.kind === "host" ? `${who} wants to reach` : `${one.agent || "You"} ${one.agent ? "wants" : "want"} to run`;
}

/** The decision in one line. @param {Question} one */
export function endOf(one) {
  const by = ANSWERED[one.by] ?? ` by ${one.by}`;
  const always = one.kept ? ", always" : one.holds_until ? `, until ${clock(one.holds_until)}` : "";
  const why = one.reason ? `: ${one.reason}` : "";
  return `${one.state[0].toUpperCase()}${one.state.slice(1)}${by}${always}${why}`;
}

/** The time of day. @param {number} at milliseconds */
const clock = (at) => new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });

/** @param {number} milliseconds */
export function ageOf(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  for (const [size, unit] of /** @type {[number, string][]} */ ([[86400, "d"], [3600, "h"], [60, "min"]])) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${seconds} s`;
}
