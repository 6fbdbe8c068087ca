// The commands that run in the forks of a project, with a form to start one.
import { at, atFork, post, query } from "./api.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { useLoaded } from "./load.js";
import { Output } from "./output.js";
import { clock, count, iso, lasting, size } from "./say.js";
import { Server } from "./visit.js";

const MATTERS = ["commands", "forks"];
const ORDER = ["running", "foreground", "ended"];

/** @param {{project: string, fork?: string}} props */
export function Commands({ project, fork }) {
  const [chosen, choose] = useState("");
  const { data, error, reload } = useLoaded(at(project) + "/commands" + query({ all: "true", fork }),
    (what, which) => which === project && MATTERS.includes(what));
  const rows = data ? [...data.commands].reverse().sort((one, other) => ORDER.indexOf(one.state) - ORDER.indexOf(other.state)) : [];
  const runs = rows.some((/** @type {any} */ one) => one.state === "running");
  useTick(runs, reload);
  const open = chosen || (rows[0] ? keyOf(rows[0]) : "");
  return html`<section class="stack" aria-label="Commands">
    ${fork && html`<${Begin} project=${project} fork=${fork} begun=${(/** @type {string} */ id) => (choose(id), reload())} />`}
    ${error && html`<p class="problem" role="alert">${error.message}</p>`}
    ${data && !rows.length && html`<p class="empty">Nothing runs here.</p>`}
    ${!fork && data && html`<p class="dim small">Commands are started from a fork: open one, then its Watch.</p>`}
    <ul class="commands">${rows.map((/** @type {any} */ one) => html`
      <${Row} key=${keyOf(one)} project=${project} one=${one} named=${!fork} open=${keyOf(one) === open}
        toggle=${() => choose(keyOf(one) === open ? "none" : keyOf(one))} changed=${reload} />`)}</ul></section>`;
}

/** @param {any} one */
const keyOf = (one) => one.id || "foreground in " + one.fork;

/** Poll while a command runs and the page is visible. @param {boolean} active @param {() => void} look */
function useTick(active, look) {
  useEffect(() => {
    if (!active) return;
    const timer = setInterval(() => document.visibilityState === "visible" && look(), 2000);
    return () => clearInterval(timer);
  }, [active]);
}

/** @param {{project: string, one: any, named: boolean, open: boolean, toggle: () => void, changed: () => void}} props */
function Row({ project, one, named, open, toggle, changed }) {
  const words = html`<code class="name">${one.command}</code>`;
  const outcome = one.state !== "ended" ? one.state : one.timed_out ? "out of time" : `exit ${one.exit_code}`;
  const mark = one.state === "ended" ? (one.exit_code ? "bad" : "") : "warn";
  return html`<li class=${"panel command" + (one.state === "ended" ? " over" : "")}>
    <div class="panel-head"><span class=${"tag " + mark}>${outcome}</span>
      <button type="button" class="quiet grow words" aria-expanded=${String(open)} onClick=${toggle}>${words}</button>
      <span class="row dim small">
        ${named && html`<span class="name">${one.fork}</span>`}${one.agent && html`<span class="name">${one.agent}</span>`}
        ${one.state === "running" && html`<span>${used(one)}</span>`}
        ${one.hosts.map((/** @type {string} */ host, /** @type {number} */ at) => html`<${Server} key=${host} host=${host} label=${"port " + one.ports[at]} />`)}
        <time datetime=${iso(one.started)} title=${new Date(one.started).toString()}>${one.state === "ended" && one.ended ? `${clock(one.started)}, ${lasting(one.ended - one.started)}` : "since " + clock(one.started)}</time></span>
      ${one.state === "running" && html`<${End} project=${project} id=${one.id} changed=${changed} />`}</div>
    ${open && one.state === "foreground" && html`<p class="remark dim small">In the foreground of another process: its output is seen here if that process captures it, and not if it goes to a terminal.</p>`}
    ${open && html`<${Output} key=${one.started} project=${project} path=${one.id ? `${at(project)}/commands/${encodeURIComponent(one.id)}/output` : atFork(project, one.fork) + "/output"} />`}</li>`;
}

/** @param {any} one */
function used(one) {
  const parts = [];
  if (one.cpu !== null) parts.push(`${one.cpu.toFixed(1)} s CPU`);
  if (one.memory !== null) parts.push(size(one.memory));
  if (one.processes > 1) parts.push(count(one.processes, "process", "processes"));
  return parts.join(" · ");
}

/** @param {{project: string, id: string, changed: () => void}} props */
function End({ project, id, changed }) {
  const [state, setState] = useState("");
  const [problem, setProblem] = useState("");
  const end = () => {
    setState("ending");
    post(`${at(project)}/commands/${encodeURIComponent(id)}/end`, { grace: 2 }).then(changed, (error) => {
      setState("");
      setProblem(error.message);
    });
  };
  if (state === "ending") return html`<span class="dim small" role="status">ending…</span>`;
  if (state === "sure") {
    return html`<span class="row" role="group" aria-label="End it?"><span class="small">End it? What it has changed stays.</span>
      <button type="button" class="danger primary" autofocus onClick=${end}>End it</button>
      <button type="button" onClick=${() => setState("")}>Let it run</button></span>`;
  }
  return html`<span class="row">${problem && html`<span class="problem small" role="alert">${problem}</span>`}
    <button type="button" class="danger" onClick=${() => setState("sure")}>End…</button></span>`;
}

/** @param {{project: string, fork: string, begun: (id: string) => void}} props */
function Begin({ project, fork, begun }) {
  const [line, setLine] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  const start = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!line.trim() || busy) return;
    setBusy(true);
    setProblem(null);
    post(atFork(project, fork) + "/commands", { command: ["sh", "-c", line] }).then(
      (row) => (setLine(""), field.current?.focus(), begun(row.id)), setProblem,
    ).finally(() => setBusy(false));
  };
  return html`<form class="begin stack" onSubmit=${start}>
    <label class="field"><span>Run a command in <b class="name">${fork}</b></span>
      <span class="row"><input ref=${field} class="grow mono" type="text" value=${line} autocomplete="off" autocapitalize="off" spellcheck=${false} placeholder="pytest -q | tail"
        onInput=${(/** @type {any} */ event) => setLine(event.currentTarget.value)} aria-describedby="begin-how" />
      <button type="submit" class="primary" disabled=${busy || !line.trim()}>${busy ? "Starting…" : "Run"}</button></span></label>
    <p class="dim small" id="begin-how">A shell in the fork reads it: <code>sh -c '…'</code>. It stays in the background, and goes on if this page or the server ends. Nothing reaches the project before it is applied.</p>
    ${problem && html`<p class="problem" role="alert">${problem.message}${problem.hint && `: ${problem.hint}`}</p>`}</form>`;
}
