// The list of projects, and one project with its forks and applies.
import { Level } from "./badge.js";
import { html } from "./html.js";
import { spelled } from "./code.js";
import { ForkCard } from "./fork.js";
import { Applies } from "./applies.js";
import { useLoaded } from "./load.js";
import { Matrix } from "./matrix.js";
import { counted } from "./plural.js";
import { toProject } from "./route.js";
import { Needs, Running } from "./first.js";
import { Tries } from "./tries.js";

/** @param {{label?: string}} props */
export function Waiting({ label = "Loading" }) {
  return html`<main class="page" tabindex="-1" aria-busy="true"><span class="hidden">${label}</span>
    <div class="skeleton w40"></div><div class="skeleton w80"></div><div class="skeleton w60"></div></main>`;
}

/** @param {{error: any, again: () => void, more?: any}} props `more`: further actions */
export function Failed({ error, again, more = null }) {
  return html`<main class="page" tabindex="-1"><h1>That did not work</h1><p class="problem name">${error.message}</p>
    ${error.hint && html`<p class="name">${error.hint}</p>`}<p class="row"><button type="button" onClick=${again}>Try again</button>${more}</p></main>`;
}

/** @param {{me: any}} props `me.sandbox`: what is certified on this machine, and what is closed */
export function Home({ me }) {
  const { data, error, reload } = useLoaded("/projects", (what) => what !== "journal");
  if (error && !data) return html`<${Failed} error=${error} again=${reload} />`;
  if (!data) return html`<${Waiting} />`;
  return html`<main class="page" tabindex="-1"><div class="spread"><h1>Projects</h1><a class="button primary" href="#/new">New session</a></div>
    ${data.length > 0 && html`<${Needs} projects=${data} /><${Running} projects=${data} /><h2>All projects</h2>`}
    ${me.sandbox.map((/** @type {string} */ line) => html`<p class=${"small name " + (/closed|none/.test(line) ? "banner warn" : "dim")}>Sandbox: ${line}</p>`)}
    ${data.length === 0 && html`<p class="empty panel">No project yet. Choose <a href="#/new">New session</a> to stage a folder, or run this in one: <code>mudroom run -- npm install</code></p>`}
    <ul class="cards">${data.map((/** @type {any} */ one) => html`<${ProjectCard} key=${one.id} project=${one} />`)}</ul></main>`;
}

/** @param {{project: any}} props */
function ProjectCard({ project }) {
  return html`<li class="card"><h3><a class="name" href=${toProject(project.id)}>${spelled(project.path || project.id)}</a></h3>
    <p class="row">
      ${project.questions > 0 && html`<span class="tag warn">${counted(project.questions, "question")} waiting</span>`}
      ${project.running > 0 && html`<span class="tag warn">${project.running} running</span>`}
      ${!project.exists && html`<span class="tag bad">the folder is gone</span>`}
      <span class="count">${counted(project.forks, "fork")}</span><span class="count">${counted(project.unapplied, "changed file")} not applied</span></p>
    ${project.remarks.map((/** @type {string} */ text) => html`<p class="problem small name">${text}</p>`)}</li>`;
}

/** @param {{project: string, place: {data: any, error: any, reload: () => void}}} props */
export function Project({ project, place: { data, error, reload } }) {
  if (error && !data) return html`<${Failed} error=${error} again=${reload} />`;
  if (!data) return html`<${Waiting} />`;
  return html`<main class="page" tabindex="-1">
    <div class="spread"><h1 class="name">${spelled(data.path)}</h1><span class="actions"><a class="button" href=${toProject(project) + "/watch"}>Watch</a>
      <a class="button primary" href="#/new">New session</a></span></div>
    <p class="row"><${Level} badge=${data.badge} /><span class="dim small">${data.badge.why}</span></p>
    ${data.notes.map((/** @type {string} */ note) => html`<p class="banner warn name">${note}</p>`)}
    ${data.verify && html`<p class="dim small">Before an apply, this has to succeed: <code class="name">${data.verify}</code></p>`}
    <h2>Forks</h2>
    ${data.forks.length === 0 && html`<p class="empty panel">No fork. Run a command in this folder to make one: <code>mudroom run --keep -- COMMAND</code></p>`}
    <ul class="cards">${data.forks.map((/** @type {any} */ one) => html`<${ForkCard} key=${one.name} project=${project} fork=${one} usual=${data.badge} changed=${reload} />`)}</ul>
    <${Matrix} project=${project} forks=${data.forks} />
    <${Tries} project=${project} />
    <h2>Applies</h2><${Applies} project=${project} applies=${data.applies} changed=${reload} /></main>`;
}
