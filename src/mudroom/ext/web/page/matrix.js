// Which forks of a project conflict with the project and with each other: a table, and below it the paths.
import { at } from "./api.js";
import { html, useState } from "./html.js";
import { useLoaded } from "./load.js";
import { counted } from "./plural.js";
import { toFork } from "./route.js";

let last = false; // whether it is open, as long as the page is

/** Closed until it is wanted: to compare takes up to seconds. @param {{project: string, forks: any[]}} props */
export function Matrix({ project, forks }) {
  const [open, setOpen] = useState(last);
  if (forks.length < 2) return null;
  return html`<details class="matrix" open=${open} onToggle=${(/** @type {any} */ event) => setOpen((last = event.currentTarget.open))}>
    <summary><h2>Conflicts between forks</h2></summary>${open && html`<${Compared} project=${project} />`}</details>`;
}

/** @param {{project: string}} props */
function Compared({ project }) {
  const { data, error, reload } = useLoaded(at(project) + "/matrix", (what, which) => which === project && (what === "forks" || what === "applies"));
  if (error && !data) return html`<p class="problem" role="alert">${error.message}</p>`;
  if (!data) return html`<p class="dim" role="status">Comparing …</p>`;
  const told = data.cells.filter((/** @type {any} */ cell) => cell.problem || cell.conflicts);
  return html`<div class="panel scroll" tabindex="0" role="group" aria-label="Conflicts between forks"><table class="rows">
      <thead><tr><td></td><th scope="col">project</th>${data.forks.slice(0, -1).map((/** @type {string} */ name) => html`<th key=${name} scope="col"><span class="name clip" title=${name}>${name}</span></th>`)}</tr></thead>
      <tbody>${data.forks.map((/** @type {string} */ name, /** @type {number} */ place) => html`<tr key=${name}><th scope="row"><span class="name clip" title=${name}>${name}</span></th>
        ${["", ...data.forks.slice(0, place)].map((other) => html`<td key=${other}><${Cell} cell=${data.cells.find((/** @type {any} */ one) => (other ? one.fork === other && one.other === name : one.fork === name && !one.other))} /></td>`)}</tr>`)}</tbody></table></div>
    ${told.length > 0 && html`<ul aria-label="Paths in conflict">${told.map((/** @type {any} */ cell) => html`<${Told} key=${cell.fork + "/" + cell.other} project=${project} cell=${cell} />`)}</ul>`}
    <p class="row"><button type="button" onClick=${() => reload()}>Compare again</button>
      <span class="dim small">with the project's files as they are now${data.forks_left > 0 && `; ${counted(data.forks_left, "older fork")} left out`}</span></p>`;
}

/** @param {{cell: any}} props */
function Cell({ cell }) {
  if (cell.problem) return html`<span class="tag warn">?<span class="hidden"> not known</span></span>`;
  return cell.conflicts ? html`<span class="tag bad">${counted(cell.conflicts, "conflict")}</span>` : html`<span class="dim">clean</span>`;
}

/** @param {{project: string, cell: any}} props */
function Told({ project, cell }) {
  const { fork, other, paths, conflicts } = cell;
  const link = (/** @type {string} */ name) => html`<a class="name" href=${other ? toFork(project, name, "review", paths[0]?.id) : toFork(project, name, "conflicts")}>${name}</a>`;
  return html`<li>${link(fork)} and ${other ? link(other) : "the project"}: ${cell.problem || paths.map((/** @type {any} */ one, /** @type {number} */ place) => html`${place > 0 && ", "}<code class="name">${one.path}</code>`)}
    ${conflicts > paths.length && ` and ${(conflicts - paths.length).toLocaleString("en")} more`}</li>`;
}
