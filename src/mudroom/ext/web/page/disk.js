// The resources that a project's forks use on this machine.
import { at } from "./api.js";
import { html, useEffect } from "./html.js";
import { useLoaded } from "./load.js";
import { size } from "./say.js";

/** @type {Record<string, string>} */
const WHAT = {
  forks: "forks", layers: "changes of forks, and checkpoints", snapshots: "snapshots of the project", applies: "applies that can be undone",
  caches: "caches of package managers", trash: "what is being removed", journal: "the journal (events)",
};

/** @param {{project: string}} props */
export function Disk({ project }) {
  const runs = useLoaded(at(project) + "/usage?disk=false", (what, which) => which === project && what === "commands");
  const disk = useLoaded(at(project) + "/usage");
  useEvery(2000, runs.reload);
  useEvery(30000, disk.reload);
  const now = runs.data;
  const held = disk.data;
  const most = Math.max(1, ...(held?.amounts ?? []).map((/** @type {any} */ one) => one.size));
  return html`<section class="stack" aria-label="Resources">
    <h2>What runs in the background</h2>
    ${now && html`<dl class="use"><div><dt>Memory</dt><dd>${size(now.memory)}</dd></div><div><dt>Processor</dt><dd>${now.cpu.toFixed(1)} s</dd></div><div><dt>Processes</dt><dd>${now.processes}</dd></div></dl>`}
    <div class="spread"><h2>On disk${held ? `: ${size(held.total)}` : ""}</h2><button type="button" onClick=${disk.reload}>Look again</button></div>
    ${(disk.error ?? runs.error) && html`<p class="problem" role="alert">${(disk.error ?? runs.error).message}</p>`}
    ${!held && !disk.error && html`<div aria-busy="true"><div class="skeleton"></div><div class="skeleton"></div></div>`}
    ${held && html`<table class="rows disk"><thead><tr><th>What</th><th class="number">How many</th><th class="number">Size</th><th><span class="hidden">Share</span></th></tr></thead>
      <tbody>${held.amounts.map((/** @type {any} */ one) => html`<tr key=${one.what}><td>${WHAT[one.what] ?? one.what}</td><td class="number">${one.number.toLocaleString("en")}</td>
        <td class="number">${size(one.size)}</td><td class="share"><div class="share-bar" style=${{ width: `${Math.ceil((100 * one.size) / most)}%` }}></div></td></tr>`)}</tbody></table>`}
    ${held?.remarks.map((/** @type {string} */ text) => html`<p class="dim small name">${text}</p>`)}
    <p class="dim small">In a terminal, <code>mudroom vault gc</code> makes room.</p></section>`;
}

/** Repeat while the page is visible. @param {number} pause milliseconds @param {() => void} run */
function useEvery(pause, run) {
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && run(), pause);
    return () => clearInterval(timer);
  }, []);
}
