// The panel of questions, beside every view. It never takes the focus.
//
// 1. The user may be clicking at the place where a new card appears: a card accepts no answer before it has been at its
//    place for a while, and a decided card stays while the pointer is in the panel.
// 2. Order: questions with a waiter, then queued ones, then decided ones.
// 3. A rule is written only as it is shown; the server refuses another one.
import { at, post } from "./api.js";
import { spelled } from "./code.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { useKeys } from "./keys.js";
import { Devices } from "./push.js";
import { ageOf, beep, endOf, headOf, keyOf, look, mayNotify, useQuestions, want, wants } from "./questions.js";
import { ofTab } from "./store.js";

const EARLY = 600; // milliseconds: too early for the card to have been read
const LINGER = 6000; // milliseconds that a decided card stays

/** @typedef {import("./questions.js").Question} Question */

/** Whether the user has opened or closed the panel; null: automatic, until the next question. */
let opened = /** @type {boolean | null} */ (null);
/** @type {Set<(opened: boolean | null) => void>} */
const openers = new Set();

/** @param {boolean | null} now */
function open(now) {
  opened = now;
  for (const tell of [...openers]) tell(now);
}

const LATER = "later";
/** Questions that were put off in this tab. */
const putOff = () => new Set((ofTab.get(LATER) ?? "").split(" "));

/** Whether the panel is shown automatically: not for questions that were put off and have no waiter. @param {Question[]} asks */
function calls(asks) {
  const later = putOff();
  return asks.some((one) => one.waiting || !later.has(keyOf(one)));
}

function useOpened() {
  const [now, setNow] = useState(opened);
  useEffect(() => {
    openers.add(setNow);
    return () => void openers.delete(setNow);
  }, []);
  return now;
}

/** The button in the top bar: how many questions wait; it opens the panel. */
export function QuestionsButton() {
  const { waiting } = useQuestions();
  const shown = useOpened() ?? calls(waiting);
  return html`<button type="button" class=${"asked" + (waiting.length ? " some" : " quiet")} aria-expanded=${String(shown)} aria-controls="decide"
    onClick=${() => open(!shown)}>Questions${waiting.length > 0 && html` <span class="number">${waiting.length}</span>`}</button>`;
}

export function Questions() {
  const known = useQuestions();
  const choice = useOpened();
  const panel = useRef(/** @type {any} */ (null));
  const [shown, heard] = useShown(known, panel);
  const now = useNow(shown.length > 0);
  useKeys("page", { questions: () => goThere() });
  useKeys("decide", { "allow-once": () => answered("once"), deny: () => answered("no") });
  const visible = choice ?? calls(shown);
  const away = () => {
    ofTab.set(LATER, known.waiting.map(keyOf).join(" "));
    leave();
  };
  const waiting = known.waiting.length;
  return html`<div class="hidden" aria-live="assertive">${heard}</div>
    <aside id="decide" class="decide" aria-labelledby="decide-head" hidden=${!visible} ref=${panel} onKeyDown=${(/** @type {KeyboardEvent} */ event) => pressed(event, away)}>
      <header class="spread"><h2 id="decide-head">${waiting === 0 ? "Nothing waits" : waiting === 1 ? "1 question waits" : `${waiting} questions wait`}</h2>
        <button type="button" class="quiet" onClick=${away}>${waiting ? "Later" : "Close"}</button></header>
      ${known.problem && html`<p class="banner bad" role="status">${known.problem}</p>`}
      ${known.remarks.map((one) => html`<p class="banner warn" key=${one}>${one}</p>`)}
      <ul class="asks">${shown.map((one, at) => html`<${Card} key=${keyOf(one)} one=${one} now=${now} above=${shown.slice(0, at).map((other) => keyOf(other) + other.state).join(" ")} />`)}</ul>
      <${Recent} recent=${known.recent.filter((one) => !shown.some((other) => keyOf(other) === keyOf(one)))} />
      <${Telling} />
    </aside>`;
}

/**
 * The waiting questions, and for a while the decided ones below them; and the announcement of a new one.
 * @param {import("./questions.js").Known} known @param {{current: any}} panel
 * @returns {[Question[], string]}
 */
function useShown(known, panel) {
  const [heard, setHeard] = useState("");
  const [, redraw] = useState(0);
  const kept = useRef({ known: /** @type {import("./questions.js").Known | null} */ (null), left: /** @type {Question[]} */ ([]), heard: "", news: false });
  const state = kept.current;
  if (state.known !== known) {
    // during rendering, so that a card that ends is the same card
    const was = state.known?.waiting ?? [];
    const news = known.waiting.filter((one) => !was.some((other) => keyOf(other) === keyOf(one)));
    const ended = was.filter((one) => !known.waiting.some((other) => keyOf(other) === keyOf(one)))
      .map((one) => known.recent.find((other) => keyOf(other) === keyOf(one)) ?? { ...one, state: "gone" });
    const said = [...ended.map((one) => `${one.what.slice(0, 200)}: ${endOf(one)}`), ...news.map((one) => `${headOf(one)}: ${one.what.slice(0, 200)}`)];
    kept.current = { known, left: [...state.left, ...ended], heard: said.join(". ") || state.heard, news: news.length > 0 };
  }
  useLayoutEffect(() => void (kept.current.news && open(null)), [known]); // before the user can put it off
  useEffect(() => {
    setHeard(kept.current.heard);
    const last = kept.current.left;
    if (!last.length) return;
    let timer = 0;
    const leave = () => {
      if (isBusy(panel.current)) return void (timer = window.setTimeout(leave, LINGER / 3));
      kept.current = { ...kept.current, left: kept.current.left.filter((one) => !last.includes(one)) };
      redraw((count) => count + 1);
    };
    timer = window.setTimeout(leave, LINGER);
    return () => clearTimeout(timer);
  }, [known]);
  const all = [...kept.current.left, ...known.waiting];
  return [all.sort((one, other) => rank(one) - rank(other) || one.asked - other.asked || (one.id < other.id ? -1 : 1)), heard];
}

/** @param {Question} one */
const rank = (one) => (one.state !== "waiting" ? 2 : one.waiting ? 0 : 1);

/** Whether the user is in the panel; not if the user has only answered. @param {Element | null} panel */
const isBusy = (panel) => Boolean(panel?.matches(":hover") || (panel?.matches(":focus-within") && !document.activeElement?.closest("li.ask:not(.waiting)")));

/** The current time, updated every second. @param {boolean} runs */
function useNow(runs) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    if (!runs) return;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [runs]);
  return now;
}

/** Keys pressed here do not reach other views: "a" means something else in the list of files. @param {KeyboardEvent} event @param {() => void} away */
function pressed(event, away) {
  if (event.key === "Escape") away();
  if (!"?Qyn".includes(event.key)) event.stopPropagation();
}

/** Answer the card that has the keyboard. @param {"once" | "no"} name */
function answered(name) {
  const button = document.activeElement?.closest("li.ask")?.querySelector(`button[data-answer="${name}"]`);
  if (!(button instanceof HTMLButtonElement)) return false;
  button.click();
}

/** The element that had the focus before the panel. @type {Element | null} */
let from = null;

/** Return the focus to where it came from, or to the button that opens the panel. */
function goBack() {
  const back = from instanceof HTMLElement && from.isConnected && from !== document.body ? from : document.querySelector('[aria-controls="decide"]');
  if (back instanceof HTMLElement) back.focus();
}

/** Close the panel. */
function leave() {
  if (document.getElementById("decide")?.contains(document.activeElement)) goBack();
  open(false);
}

/** Move the focus to a card, else the first one or the panel, and back again. @param {string} [key] of the question */
export function goThere(key = "") {
  const panel = document.getElementById("decide");
  if (panel?.contains(document.activeElement)) return goBack();
  from = document.activeElement;
  open(true);
  requestAnimationFrame(() => {
    const card = panel?.querySelector(`li.ask[data-key="${CSS.escape(key)}"]`);
    const first = (card ?? panel)?.querySelector("button[data-answer]:not(:disabled)") ?? (card ?? panel)?.querySelector("pre.what, button");
    if (first instanceof HTMLElement) first.focus();
  });
}

/** @param {{one: Question, now: number, above: string}} props `above`: the cards above it; while they are the same, it stays at its place */
function Card({ one, now, above }) {
  const [busy, setBusy] = useState(false);
  const [settled, setSettled] = useState(/** @type {string | null} */ (null)); // the cards above for long enough
  const early = settled !== above;
  const [problem, setProblem] = useState("");
  const [reason, setReason] = useState("");
  const waits = one.state === "waiting";
  useEffect(() => {
    const timer = setTimeout(() => setSettled(above), EARLY);
    return () => clearTimeout(timer);
  }, [above]);
  const answer = async (/** @type {boolean} */ allow, /** @type {boolean} */ keep, offered = "", hour = false) => {
    if (busy || early) return;
    setBusy(true);
    setProblem("");
    try {
      const rule = offered || !keep ? offered : allow ? one.allow_rule : one.deny_rule;
      const done = await post(`${at(one.project)}/questions/${encodeURIComponent(one.id)}`, { allow, keep, rule, hour, reason });
      setProblem(done.problem);
    } catch (error) {
      const refused = /** @type {any} */ (error);
      if (refused.code !== "decided") setProblem([refused.message, refused.hint].filter(Boolean).join(": "));
    }
    setBusy(false);
    look();
  };
  return html`<li class=${"card ask " + one.state} data-key=${keyOf(one)} aria-label=${`${headOf(one)} ${one.what.slice(0, 120)}`}>
    <${What} one=${one} now=${now} />
    ${problem && html`<p class="banner bad" role="alert">${problem}</p>`}
    ${waits ? html`<${Answers} one=${one} off=${busy || early} answer=${answer} reason=${reason} setReason=${setReason} />`
      : html`<p class=${"banner " + (one.state === "allowed" ? "good" : "warn")}>${one.state === "gone" ? "It is not there any more" : endOf(one)}</p>`}
  </li>`;
}

/** @param {{one: Question, now: number}} props */
function What({ one, now }) {
  const left = one.until > now ? `, and waits ${ageOf(one.until - now)} more` : "";
  const named = one.project_path.replace(/.*\/(?=.)/, "");
  return html`<p class="dim small spread"><span class="name" title=${one.project_path}>${named}${one.fork ? ` › ${one.fork}` : ""}</span>
      <span>asked ${ageOf(now - one.asked)} ago${one.waiting ? left : ""}</span></p>
    <h3 class="name">${headOf(one)}</h3>
    <pre class="what" tabindex="0" aria-label=${one.kind === "host" ? "Host and port" : "The command"}>${one.what}</pre>
    <p class="name">${one.why}</p>
    ${one.cwd && html`<p class="small">in <code class="name">${spelled(one.cwd)}</code></p>`}
    ${one.terms.length > 0 && html`<p class="small name">${one.terms.join(", ")}</p>`}
    ${one.files.length > 0 && html`<${Files} files=${one.files} />`}
    ${one.note && html`<p class="banner warn"><span class="name">Asked anew: ${one.note}</span></p>`}
    ${one.state === "waiting" && !one.waiting && html`<p class="banner">The command no longer waits. An answer holds once, if the same is asked within an hour.</p>`}`;
}

/** @param {{files: string[]}} props */
function Files({ files }) {
  const list = html`<ul>${files.map((file) => html`<li key=${file}><code class="name">${spelled(file)}</code></li>`)}</ul>`;
  if (files.length <= 3) return html`<div class="small">for these files as they are now:${list}</div>`;
  return html`<details class="small"><summary>for ${files.length} files as they are now</summary>${list}</details>`;
}

/** @param {{one: Question, off: boolean, answer: (allow: boolean, keep: boolean, offered?: string, hour?: boolean) => void, reason: string, setReason: (reason: string) => void}} props */
function Answers({ one, off, answer, reason, setReason }) {
  const id = `rule-${one.project}-${one.id}`;
  const hour = one.hour_rule && html`<button type="button" disabled=${off} aria-describedby=${id + "-hour"} onClick=${() => answer(true, false, "", true)}>Allow for an hour</button>
    <span class="small" id=${id + "-hour"}>${one.hour_rule}</span>`;
  const always = one.can_keep && html`
    <button type="button" disabled=${off} aria-describedby=${id + "-allow"} onClick=${() => answer(true, true)}>Always allow</button>
    <span class="small" id=${id + "-allow"}>writes <code class="name">${one.allow_rule}</code></span>
    ${one.offers.map((offer, at) => html`<button type="button" class=${offer.allows ? "" : "danger"} disabled=${off} aria-describedby=${id + "-" + at} onClick=${() => answer(offer.allows, true, offer.rule)}>${offer.words}</button>
    <span class="small" id=${id + "-" + at}>writes <code class="name">${offer.rule}</code>${offer.hosts.length > 0 && `, which allows ${offer.hosts.join(", ")}`}</span>`)}
    <button type="button" class="danger" disabled=${off} aria-describedby=${id + "-deny"} onClick=${() => answer(false, true)}>Always deny</button>
    <span class="small" id=${id + "-deny"}>writes <code class="name">${one.deny_rule}</code></span>`;
  return html`<div class="row"><button type="button" class="primary" data-answer="once" disabled=${off} onClick=${() => answer(true, false)}>Allow once</button>
      <button type="button" class="danger" data-answer="no" disabled=${off} onClick=${() => answer(false, false)}>Deny</button>
      <input class="grow" type="text" maxlength="2000" placeholder="Reason, if there is one" aria-label="Reason, told to whoever asks" value=${reason}
        onInput=${(/** @type {any} */ event) => setReason(event.currentTarget.value)} /></div>
    ${(hour || always) && html`<div class="rules">${hour}${always}</div>`}`;
}

/** @param {{recent: Question[]}} props */
function Recent({ recent }) {
  if (!recent.length) return null;
  return html`<details class="recent"><summary>Answered lately (${recent.length})</summary><ul>${recent.map((one) => html`
    <li key=${keyOf(one)}><code class="name">${one.what.slice(0, 300)}</code> <span class="small dim">${endOf(one)}, ${ageOf(Date.now() - one.ended)} ago</span>
      ${one.holds_until > 0 && html`<${TakeBack} one=${one} />`}</li>`)}</ul></details>`;
}

/** The button that ends an answer for an hour. @param {{one: Question}} props */
function TakeBack({ one }) {
  const [problem, setProblem] = useState("");
  const end = () => post(`${at(one.project)}/questions/${encodeURIComponent(one.id)}`, { allow: false }).then(look, (error) => setProblem(error.message));
  return html` <button type="button" class="quiet" onClick=${end}>Take back<span class="hidden"> ${one.what.slice(0, 120)}</span></button>
    ${problem && html`<span class="problem" role="alert">${problem}</span>`}`;
}

/** Settings: sound and desktop notifications. */
function Telling() {
  const [sound, setSound] = useState(wants("sound"));
  const [desktop, setDesktop] = useState(wants("desktop"));
  const [refused, setRefused] = useState(false);
  const toggleSound = () => {
    want("sound", !sound);
    setSound(!sound);
    if (!sound) beep();
  };
  const toggleDesktop = async () => {
    const on = !desktop && (await mayNotify());
    setRefused(!desktop && !on);
    want("desktop", on);
    setDesktop(on);
  };
  return html`<footer class="row small dim"><label class="check"><input type="checkbox" checked=${sound} onChange=${toggleSound} /><span>Sound</span></label>
    <label class="check"><input type="checkbox" checked=${desktop} onChange=${toggleDesktop} /><span>Desktop notifications</span></label>
    ${refused && html`<span class="problem" role="status">the browser does not allow them</span>`}<${Devices} /></footer>`;
}
