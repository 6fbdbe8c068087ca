// The card of a fork, and discarding it.
import { at, atFork, get, query, remove } from "./api.js";
import { Level } from "./badge.js";
import { confirmed } from "./dialog.js";
import { html, useState } from "./html.js";
import { counted } from "./plural.js";
import { toFork } from "./route.js";
import { clock, iso } from "./say.js";
import { complain, toast } from "./toast.js";
import { Server } from "./visit.js";

/** Label and mark of each state. @type {Record<string, [string, string]>} */
const STATES = {
  idle: ["idle", ""], running: ["running", "warn"], mounted: ["mounted", "warn"],
  "cut off": ["cut off: its last command was interrupted", "bad"], damaged: ["damaged", "bad"],
};

/** @param {any} summary */
export const filesOf = (summary) => summary.added + summary.modified + summary.deleted + summary.renamed;

/** @param {{summary: any, running: boolean}} props `running`: what its command has changed is counted when it ends */
export function Counts({ summary, running }) {
  const { lines_added: added, lines_removed: removed } = summary;
  if (running && !filesOf(summary)) return html`<span class="count dim">changes are counted when the command ends</span>`;
  return html`<span class="row counts"><span class="count">${counted(filesOf(summary), "changed file")}</span>
    ${added + removed > 0 && html`<span class="plus">+${added.toLocaleString("en")}</span><span class="minus">−${removed.toLocaleString("en")}</span>`}</span>`;
}

/**
 * Confirm and discard a fork in its reviewed state. If it has changed since, show that and ask again.
 * @param {string} project @param {any} fork as reviewed @param {any} [before] the state of the first question
 * @returns {Promise<boolean>} whether it is gone
 */
export async function discard(project, fork, before = null) {
  if (!(await confirmed({ title: before ? "Discard it as it is now?" : "Discard this fork?", text: told(project, fork, before), action: "Discard", danger: true }))) return false;
  try {
    await remove(atFork(project, fork.name) + query({ end: fork.state === "running" || undefined, reviewed: fork.fingerprint }));
  } catch (/** @type {any} */ error) {
    const now = error.code === "moved" ? await asItIs(project, fork) : null;
    if (now) return discard(project, now, fork);
    complain(error);
    return false;
  }
  toast(`${fork.name} was discarded`);
  return true;
}

/** The text of the question: what is lost. @param {string} project @param {any} fork @param {any} before */
function told(project, fork, before) {
  const files = filesOf(fork.summary);
  const lost = files ? `${counted(files, "changed file")} that ${files === 1 ? "is" : "are"} in no project` : "nothing is changed in it";
  return html`${before && html`<p><strong>It has changed since you looked</strong>, and nothing was discarded: ${counted(filesOf(before.summary), "changed file")} then, ${counted(files, "changed file")} now. <a href=${toFork(project, fork.name)}>Review it</a></p>`}
    <p><span class="name">${fork.name}</span>: ${lost}${fork.state === "running" ? ", and what runs in it is ended." : "."}</p>
    <p>This cannot be undone.</p>`;
}

/** The fork now, if it is the same fork and has changed. @param {string} project @param {any} fork */
async function asItIs(project, fork) {
  const found = await get(at(project)).then(({ forks }) => forks.find((/** @type {any} */ one) => one.name === fork.name && one.created === fork.created), () => null);
  return found?.fingerprint !== fork.fingerprint ? found ?? null : null;
}

/** @param {{project: string, fork: any, usual: any, changed: () => void}} props `usual`: the project's badge; a card has one of its own if that differs */
export function ForkCard({ project, fork, usual, changed }) {
  const [busy, setBusy] = useState(false);
  const [state, mark] = STATES[fork.state] ?? [fork.state, ""];
  const whole = fork.part_of?.project ?? project; // a part is reviewed with all others
  const away = async () => {
    setBusy(true);
    if (!(await discard(project, fork))) setBusy(false);
    changed(); // the fork may differ from the card
  };
  return html`<li class="card fork"><div class="spread"><h3><a class="name" href=${toFork(whole, fork.name)}>${fork.name}</a></h3>${fork.badge.label !== usual.label && html`<${Level} badge=${fork.badge} />`}</div>
    ${fork.command && html`<p><code class="name clip" title=${fork.command}>${fork.command}</code></p>`}
    <p class="row"><span class=${"tag " + mark}>${state}</span>
      ${fork.exit_code !== null && fork.exit_code !== 0 && html`<span class="tag bad">exit ${fork.exit_code}</span>`}
      ${fork.agent && html`<span class="tag name">${fork.agent}</span>`}
      ${fork.endpoint && html`<span class="tag name">at ${fork.endpoint}</span>`}
      ${fork.host && html`<span class="tag"><${Server} host=${fork.host} label=${fork.host} /></span>`}
      ${fork.also_in.map((/** @type {string} */ label) => html`<span key=${label} class="tag warn name">also in ${label}</span>`)}
      ${fork.part_of && html`<span class="tag name">a part of ${fork.name} of ${fork.part_of.path}</span>`}
      ${fork.parent && html`<span class="tag name">from ${fork.parent}</span>`}
      ${fork.snapshot && html`<span class="tag">on a snapshot</span>`}
      ${fork.checkpoints > 0 && html`<span class="tag">${counted(fork.checkpoints, "checkpoint")}</span>`}
      ${fork.credentials.length > 0 && html`<span class="tag bad name">credentials: ${fork.credentials.join(", ")}</span>`}
      <time class="dim small" datetime=${iso(fork.created)}>${clock(fork.created)}</time></p>
    <div class="spread"><${Counts} summary=${fork.summary} running=${fork.state === "running"} /><span class="actions">
      <a class="button" href=${toFork(project, fork.name, "watch")}>Watch<span class="hidden"> ${fork.name}</span></a>
      ${!fork.part_of && html`<button type="button" class="danger" disabled=${busy} onClick=${away}>Discard<span class="hidden"> ${fork.name}</span></button>`}
      <a class="button primary" href=${toFork(whole, fork.name)}>Review<span class="hidden"> ${fork.name}</span></a></span></div></li>`;
}
