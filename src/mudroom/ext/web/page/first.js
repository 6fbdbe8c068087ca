// The first view: what needs the user, then what runs, with its level and what it costs.
import { at } from "./api.js";
import { spelled } from "./code.js";
import { goThere } from "./decide.js";
import { html, useEffect } from "./html.js";
import { useKeys } from "./keys.js";
import { useLoaded } from "./load.js";
import { ageOf } from "./questions.js";
import { MOST, needsOf, runningOf } from "./needs.js";
import { toFork, toProject } from "./route.js";
import { count, iso, lasting, size } from "./say.js";

const LOOK = 3000; // milliseconds: what a command costs changes without an event
/** @param {string} path */
const last = (path) => path.slice(path.lastIndexOf("/") + 1) || path;

/** @param {{projects: any[]}} props */
export function Needs({ projects }) {
  const needs = needsOf(projects);
  useKeys("home", { "next-need": () => step(1), "previous-need": () => step(-1) });
  return html`<section class="stack" aria-labelledby="needs"><h2 id="needs">Needs you</h2>
    ${needs.length === 0 && html`<p class="empty panel">Nothing waits for you. Questions of agents, conflicts and finished work are listed here.</p>`}
    ${needs.length > 0 && html`<ul class="stack needs" id="queue">${needs.slice(0, MOST).map((one) => html`<${Need} key=${one.project.id + " " + (one.notice.question || one.notice.fork)} need=${one} />`)}</ul>`}
    ${needs.length > MOST && html`<p class="dim small">And ${count(needs.length - MOST, "more", "more")}, in the projects below.</p>`}</section>`;
}

/** Move the focus among the rows. @param {1 | -1} by */
function step(by) {
  const all = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("#queue .button, #queue button")]);
  const at = all.findIndex((one) => one === document.activeElement);
  all[at < 0 && by < 0 ? all.length - 1 : Math.max(0, Math.min(all.length - 1, at + by))]?.focus();
}

const BAD = new Set(["damaged", "unverified"]);

/** @param {{need: import("./needs.js").Need}} props */
function Need({ need: { project, notice } }) {
  const { kind, fork, agent, command, ended, action, question } = notice;
  const where = html`<span class="dim small name" title=${project.path}>${spelled(last(project.path))}</span>`;
  return html`<li class="panel row need"><span class=${"tag " + (BAD.has(kind) ? "bad" : kind === "finished" ? "" : "warn")}>${kind}</span>
    ${fork && html`<span class="name">${spelled(fork)}</span>`}${agent && agent !== fork && html`<span class="tag name">${spelled(agent)}</span>`}
    <span class="grow">${notice.words}${command && html` <code class="name clip" title=${command}>${spelled(command)}</code>`}</span>
    ${ended > 0 && html`<time class="dim small" datetime=${iso(ended)}>${ageOf(Date.now() - ended)} ago</time>`}${where}
    ${question ? html`<button type="button" class="primary" onClick=${() => goThere(`${project.id}/${question}`)}>${action}<span class="hidden"> ${command} in ${last(project.path)}</span></button>`
      : html`<a class="button" href=${kind === "damaged" ? toProject(project.id) : toFork(project.id, fork, kind === "conflict" ? "conflicts" : "review")}>${action}<span class="hidden"> ${fork}</span></a>`}</li>`;
}

/** @param {{projects: any[]}} props */
export function Running({ projects }) {
  const running = runningOf(projects);
  if (!running.length) return null;
  return html`<section class="stack" aria-labelledby="running"><h2 id="running">Running</h2>
    ${running.map(({ project, notices }) => html`<${RunningIn} key=${project.id} project=${project} notices=${notices} />`)}</section>`;
}

/** @param {{project: any, notices: any[]}} props */
function RunningIn({ project, notices }) {
  const { data, reload } = useLoaded(at(project.id) + "/commands", (what, which) => which === project.id && (what === "commands" || what === "forks"));
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && reload(), LOOK);
    return () => clearInterval(timer);
  }, [project.id]);
  const commands = data?.commands ?? [];
  return html`<ul class="stack needs" aria-label=${"Running in " + project.path}>${notices.map((notice) => {
    const own = commands.filter((/** @type {any} */ one) => one.fork === notice.fork);
    return html`<li key=${notice.fork} class="panel row need"><span class="tag">${levelOf(notice, own)}</span><span class="name">${spelled(notice.fork)}</span>
      ${notice.agent && notice.agent !== notice.fork && html`<span class="tag name">${spelled(notice.agent)}</span>`}
      <code class="name clip grow">${own.map((/** @type {any} */ one) => one.command).join("; ")}</code>
      <span class="dim small">${own.map(cost).filter(Boolean).join("; ")}</span>
      ${own.length > 0 && html`<time class="dim small" datetime=${iso(own[0].started)}>${lasting(Date.now() - own[0].started)}</time>`}
      <span class="dim small name" title=${project.path}>${spelled(last(project.path))}</span>
      <a class="button" href=${toFork(project.id, notice.fork, "watch")}>Watch<span class="hidden"> ${notice.fork}</span></a></li>`;
  })}</ul>`;
}

/** The level of what runs: of a command, else of the fork's last one. @param {any} notice @param {any[]} commands */
function levelOf(notice, commands) {
  const level = commands.find((one) => one.level !== null)?.level ?? notice.badge.level;
  return level === null ? "level not recorded yet" : level === 0 ? "level 0: not sandboxed" : `level ${level}`;
}

/** What a command has cost so far. @param {any} command */
function cost(command) {
  const parts = command.cpu === null ? [] : [`${command.cpu.toFixed(1)} s CPU`];
  return [...parts, ...(command.memory === null ? [] : [size(command.memory)])].join(" · ");
}
