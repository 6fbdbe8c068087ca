// The applies of a project, with undo and redo.
import { at, finished, get, post } from "./api.js";
import { confirmed } from "./dialog.js";
import { html, useState } from "./html.js";
import { counted } from "./plural.js";
import { toFork, toProject } from "./route.js";
import { clock, iso } from "./say.js";
import { complain, toast } from "./toast.js";

/** @type {Record<string, string>} */
const STATES = { applied: "applied", undone: "undone", deferred: "not finished", interrupted: "interrupted" };
/** Words for a finished action. @type {Record<string, string>} */
const ENDED = { undo: "undone", redo: "applied again" };
/** The actions on an apply in each state, with their labels. @type {Record<string, ["undo" | "redo", string][]>} */
const OFFERED = {
  applied: [["undo", "Undo"]], undone: [["redo", "Redo"]], deferred: [["undo", "Take back"]],
  interrupted: [["redo", "Apply the rest"], ["undo", "Take back"]],
};

const NAMED = 3; // files in a message

/** The conflicts between the project and what an undo could not take back. @param {string} project @param {string} apply */
export async function decide(project, apply) {
  try {
    const { fork } = await post(`${at(project)}/undo/decide`, { apply });
    location.hash = toFork(project, fork, "conflicts");
  } catch (error) {
    complain(error);
  }
}

/** @param {{project: string, one: any, busy: boolean}} props */
const Decide = ({ project, one, busy }) => one.refused && html`<button type="button" disabled=${busy} onClick=${() => decide(project, one.id)}>Decide<span class="hidden"> what the undo of ${one.id} left</span></button>`;

/** @param {any} remark */
export const isOfPush = ({ path }) => /^(push|publish|request|mail):/.test(path);

/** Whether an undo is wanted, with what it can do about sent effects. @param {string} project @param {string} apply */
async function agreed(project, apply) {
  const { applies } = await get(at(project));
  const sent = applies.find((/** @type {any} */ one) => (apply ? one.id === apply : one.state === "applied"))?.sent ?? [];
  const text = html`<p>The files are as before the apply again. What it has sent:</p><ul>${sent.map((/** @type {string} */ line) => html`<li class="name" key=${line}>${line}</li>`)}</ul>`;
  return !sent.length || confirmed({ title: "Take this apply back?", text, action: "Undo" });
}

/**
 * Undo or redo an apply, and show the outcome.
 * @param {string} project @param {"undo" | "redo"} act @param {string} apply @returns {Promise<any>} the outcome; null: it failed
 */
export async function act(project, act, apply) {
  try {
    if (act === "undo" && !(await agreed(project, apply))) return null;
    const job = await finished(await post(`${at(project)}/${act}`, { apply }));
    if (job.problem) throw Object.assign(new Error(job.problem.error), job.problem);
    const left = (job.landed?.conflicts ?? []).map((/** @type {any} */ one) => one.path);
    const said = (job.landed?.remarks ?? []).filter((/** @type {any} */ one) => isOfPush(one) && !one.text.startsWith("remote: ")).slice(0, NAMED).map((/** @type {any} */ one) => `. ${one.path} ${one.text}`).join("");
    const bad = left.length > 0 || Boolean(job.landed?.pushes_left);
    const names = left.slice(0, NAMED).join(", ") + (left.length > NAMED ? ` and ${left.length - NAMED} more` : "");
    toast(`${apply || "The last apply"} was ${ENDED[act]}${job.landed?.summary ? `: ${job.landed.summary}` : ""}${left.length ? `, but for ${counted(left.length, "file")} that changed since: ${names}` : ""}${said}`,
      { bad, ...(left.length && act === "undo" ? { action: { label: "Decide", run: () => void decide(project, job.landed.undo) } } : {}) });
    return job.landed;
  } catch (error) {
    complain(error);
    return null;
  }
}

/** Shown for a fork without changes, with links to go on. @param {{project: string, fork: string, applies: any[]}} props */
export function Emptied({ project, fork, applies }) {
  const [busy, setBusy] = useState(false);
  const last = applies.find((one) => one.fork === fork);
  const run = async (/** @type {"undo" | "redo"} */ what) => {
    setBusy(true);
    await act(project, what, last.id);
    setBusy(false);
  };
  return html`<div class="empty stack"><p>This fork changes nothing${last ? ` any more: what it changed was ${last.state === "undone" ? `applied as ${last.id} and undone` : STATES[last.state] ?? last.state}` : ""}.</p>
    <p class="row"><a class="button primary" href=${toProject(project)}>To the project</a>
      ${last && (OFFERED[last.state] ?? []).map(([what, label], at) => html`<button type="button" key=${at} disabled=${busy} onClick=${() => run(what)}>${label}</button>`)}
      ${last && html`<${Decide} project=${project} one=${last} busy=${busy} />`}</p></div>`;
}

/** @param {{project: string, applies: any[], changed: () => void}} props */
export function Applies({ project, applies, changed }) {
  const [busy, setBusy] = useState("");
  const run = async (/** @type {"undo" | "redo"} */ what, /** @type {string} */ apply) => {
    setBusy(apply);
    await act(project, what, apply);
    setBusy("");
    changed();
  };
  if (!applies.length) return html`<p class="dim">Nothing has been applied yet.</p>`;
  return html`<div class="panel scroll" tabindex="0" role="group" aria-label="Applies"><table class="rows applies"><thead><tr><th>When</th><th>Fork</th><th>State</th><th class="number">Written</th><th class="number">Removed</th><th><span class="hidden">Take back</span></th></tr></thead>
    <tbody>${applies.map((one) => {
      const whole = one.state === "applied" || one.state === "undone";
      return html`<tr key=${one.id}><td>${one.time ? html`<time datetime=${iso(one.time)}>${clock(one.time)}</time>` : one.id}</td>
        <td><span class="name">${one.fork}</span></td><td><span class=${"tag" + (whole ? "" : " bad")}>${STATES[one.state] ?? one.state}</span>${one.kept > 0 && html` <span class="dim small">the project's was kept of ${counted(one.kept, "file")}</span>`}</td>
        <td class="number">${one.written}</td><td class="number">${one.removed}</td>
        <td class="number">${busy !== one.id && html`<${Decide} project=${project} one=${one} busy=${busy !== ""} /> `}${busy === one.id ? "…" : (OFFERED[one.state] ?? []).map(([what, label]) => html`
          <button type="button" key=${what} disabled=${busy !== ""} onClick=${() => run(what, one.id)}>${label}<span class="hidden"> ${one.id}</span></button> `)}</td></tr>`;
    })}</tbody></table></div>`;
}
