// Which forks of a project conflict with the project and with each other: a table, and below it the paths.
import { at, finished, post } from "./api.js";
import { html, useEffect, useState } from "./html.js";
import { useLoaded } from "./load.js";
import { counted } from "./plural.js";
import { toFork } from "./route.js";
import { clock } from "./say.js";
import { complain } from "./toast.js";

let last = false; // whether it is open, as long as the page is

/** Closed until it is wanted: to compare takes up to seconds. @param {{project: string, forks: any[]}} props */
export function Matrix({ project, forks }) {
  const [open, setOpen] = useState(last);
  if (forks.length < 2) return null;
  return html`<details class="matrix" open=${open} onToggle=${(/** @type {any} */ event) => setOpen((last = event.currentTarget.open))}>
    <summary><h2>Forks together</h2></summary>${open && html`<${Compared} project=${project} />`}</details>`;
}

/** @param {{project: string}} props */
function Compared({ project }) {
  const { data, error, reload } = useLoaded(at(project) + "/matrix", (what, which) => which === project && (what === "forks" || what === "applies"));
  const [job, setJob] = useState(/** @type {any} */ (null));
  const left = data?.verify ? data.cells.filter((/** @type {any} */ cell) => cell.conflicts === 0 && cell.verified === null).length : 0;
  const verify = () => post(at(project) + "/matrix/verify").then((first) => finished(first, setJob)).then(() => reload(), complain).then(() => setJob(null));
  useEffect(() => void (left && verify()), [Boolean(data)]); // once; the rest only if it is wanted
  if (error && !data) return html`<p class="problem" role="alert">${error.message}</p>`;
  if (!data) return html`<p class="dim" role="status">Comparing …</p>`;
  const told = data.cells.filter((/** @type {any} */ cell) => cell.problem || cell.conflicts);
  const since = data.cells.map((/** @type {any} */ cell) => cell.verified_at).filter(Boolean);
  return html`<div class="panel scroll" tabindex="0" role="group" aria-label="Forks together"><table class="rows">
      <thead><tr><td></td><th scope="col">project</th>${data.forks.slice(0, -1).map((/** @type {string} */ name) => html`<th key=${name} scope="col"><span class="name clip" title=${name}>${name}</span></th>`)}</tr></thead>
      <tbody>${data.forks.map((/** @type {string} */ name, /** @type {number} */ place) => html`<tr key=${name}><th scope="row"><span class="name clip" title=${name}>${name}</span></th>
        ${["", ...data.forks.slice(0, place)].map((other) => html`<td key=${other}><${Cell} cell=${data.cells.find((/** @type {any} */ one) => (other ? one.fork === other && one.other === name : one.fork === name && !one.other))} /></td>`)}</tr>`)}</tbody></table></div>
    ${told.length > 0 && html`<ul aria-label="Paths in conflict">${told.map((/** @type {any} */ cell) => html`<${Told} key=${cell.fork + "/" + cell.other} project=${project} cell=${cell} />`)}</ul>`}
    ${data.verify && html`<p class="row" role="status"><span>Verified with <code class="name">${data.verify}</code>${since.length > 0 && `, since ${clock(Math.min(...since))}`}.</span>
      ${job ? html`<span class="dim">Verifying ${job.phase || "…"}${job.total > 0 && `, ${job.done + 1} of ${job.total}`}</span>` : left > 0 && html`<button type="button" onClick=${verify}>Verify the other ${left}</button>`}</p>`}
    <p class="row"><button type="button" onClick=${() => reload()}>Compare again</button>
      <span class="dim small">with the project's files as they are now${data.forks_left > 0 && `; ${counted(data.forks_left, "older fork")} left out`}</span></p>`;
}

/** @param {{cell: any}} props */
function Cell({ cell }) {
  if (cell.problem) return html`<span class="tag warn">?<span class="hidden"> not known</span></span>`;
  if (cell.conflicts) return html`<span class="tag bad">${counted(cell.conflicts, "conflict")}</span>`;
  if (cell.verified === null) return html`<span class="dim">clean</span>`;
  return cell.verified ? html`<span class="tag">passes</span>` : html`<span class="tag bad">fails</span>`;
}

/** @param {{project: string, cell: any}} props */
function Told({ project, cell }) {
  const { fork, other, paths, conflicts } = cell;
  const link = (/** @type {string} */ name) => html`<a class="name" href=${other ? toFork(project, name, "review", paths[0]?.id) : toFork(project, name, "conflicts")}>${name}</a>`;
  return html`<li>${link(fork)} and ${other ? link(other) : "the project"}: ${cell.problem || paths.map((/** @type {any} */ one, /** @type {number} */ place) => html`${place > 0 && ", "}<code class="name">${one.path}</code>`)}
    ${conflicts > paths.length && ` and ${(conflicts - paths.length).toLocaleString("en")} more`}</li>`;
}
