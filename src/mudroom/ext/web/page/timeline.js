// The checkpoints of a fork, newest first, and rollback to one.
import { atFork, get, post, query } from "./api.js";
import { spelled } from "./code.js";
import { html, useRef, useState } from "./html.js";
import { useLoaded } from "./load.js";
import { clock, count, iso } from "./say.js";

/** The effect of a rollback on a path, by the change it drops. @type {Record<string, [string, string]>} */
const BACK = {
  added: ["goes away", "minus"], deleted: ["comes back", "plus"], modified: ["as it was then", ""], renamed: ["gets its old name", ""],
};

/** @param {{project: string, fork: string}} props */
export function Timeline({ project, fork }) {
  const path = atFork(project, fork);
  const { data, error, reload } = useLoaded(path + "/checkpoints", (what, which) => which === project && what === "forks");
  const [chosen, choose] = useState("");
  const [undo, setUndo] = useState(/** @type {any} */ (null));
  if (error && !data) return html`<p class="problem" role="alert">${error.message}</p>`;
  if (!data) return html`<div aria-busy="true"><div class="skeleton"></div><div class="skeleton"></div></div>`;
  const done = (/** @type {any} */ found) => {
    choose("");
    setUndo(found);
    reload();
  };
  const now = data.checkpoints.find((/** @type {any} */ one) => one.current);
  return html`<section class="stack" aria-label="Checkpoints">
    <${Freeze} path=${path} done=${reload} />
    ${undo && html`<div class="banner good" role="status"><span class="grow">The fork holds again what it held at <b class="name">${undo.checkpoint}</b>.${undo.undo ? "" : " Nothing had to be dropped."}</span>
      ${undo.undo && html`<button type="button" onClick=${() => choose(undo.undo)}>Undo by checkpoint <span class="name">${undo.undo}</span>…</button>`}</div>`}
    <ol class="timeline">
      ${!now && html`<li class="point now"><span class="dot"></span><span>Now</span> <span class="dim small">changed since the last checkpoint, or not frozen yet</span></li>`}
      ${[...data.checkpoints].reverse().map((/** @type {any} */ one) => html`
        <li key=${one.name} class=${"point" + (one.automatic ? " automatic" : "") + (one.current ? " now" : "")}><span class="dot"></span>
          <span class="name">${one.name}</span> <time class="dim small" datetime=${iso(one.time)}>${clock(one.time)}</time>
          ${one.automatic && html`<span class="tag">made by mudroom</span>`}
          ${one.current ? html`<span class="tag warn">here now</span>` : html`<button type="button" aria-expanded=${String(chosen === one.name)} onClick=${() => choose(chosen === one.name ? "" : one.name)}>Roll back to here…</button>`}
          ${chosen === one.name && html`<${Preview} path=${path} point=${one.name} done=${done} cancel=${() => choose("")} />`}</li>`)}
      <li class="point first"><span class="dot"></span><span class="dim">The fork was made</span> <time class="dim small" datetime=${iso(data.created)}>${clock(data.created)}</time></li>
    </ol></section>`;
}

/** @param {{path: string, point: string, done: (found: any) => void, cancel: () => void}} props */
function Preview({ path, point, done, cancel }) {
  const where = path + "/rollback" + query({ checkpoint: point });
  const { data, error, reload } = useLoaded(where, (what) => what === "forks");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const back = async () => {
    setBusy(true);
    setProblem(null);
    try {
      done(await post(path + "/rollback", { checkpoint: point, fingerprint: data.fingerprint }));
    } catch (caught) {
      setProblem(caught);
      setBusy(false);
      reload();
    }
  };
  if (error && !data) return html`<p class="problem" role="alert">${error.message}</p>`;
  if (!data) return html`<p class="dim" aria-busy="true">Comparing…</p>`;
  return html`<div class="panel drop" role="group" aria-label=${"Roll back to " + point}>
    <div class="panel-head"><b>${data.total ? `${count(data.total, "file")} would change` : "Nothing would change"}</b>
      <span class="plus">+${data.summary.lines_removed.toLocaleString("en")}</span><span class="minus">−${data.summary.lines_added.toLocaleString("en")}</span>
      <span class="grow"></span>
      <button type="button" class="danger primary" disabled=${busy} onClick=${back}>${busy ? "Rolling back…" : "Roll back"}</button>
      <button type="button" disabled=${busy} onClick=${cancel}>Cancel</button></div>
    ${problem && html`<p class="problem remark" role="alert">${problem.code === "moved" ? "The fork has changed since this was shown. This is what would be dropped now:" : problem.message}</p>`}
    <p class="remark dim small">What is dropped is kept as a checkpoint of its own, by which it can be had back.</p>
    <table class="rows"><thead class="hidden"><tr><th>What happens</th><th>File</th><th>Lines</th></tr></thead>
      <tbody>${data.rows.map((/** @type {any} */ row) => html`<tr key=${row.id}><td class=${"small " + BACK[row.change][1]}>${BACK[row.change][0]}</td>
        <td><span class="name mono">${spelled(row.path)}</span></td><td class="number small"><span class="plus">+${row.removed}</span> <span class="minus">−${row.added}</span></td></tr>`)}</tbody></table>
    ${data.total > data.rows.length && html`<p class="remark dim">and ${count(data.total - data.rows.length, "more file")}</p>`}</div>`;
}

/** @param {{path: string, done: () => void}} props */
function Freeze({ path, done }) {
  const [name, setName] = useState("");
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  const freeze = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!name.trim() || busy) return;
    setBusy(true);
    setProblem("");
    post(path + "/checkpoints", { name: name.trim() }).then(() => (setName(""), field.current?.focus(), done()), (error) => setProblem([error.message, error.hint].filter(Boolean).join(": ")))
      .finally(() => setBusy(false));
  };
  return html`<form class="row" onSubmit=${freeze}><label class="row grow"><span>Freeze what the fork holds now as</span>
    <input ref=${field} type="text" value=${name} maxlength="64" autocomplete="off" placeholder="before-refactoring" onInput=${(/** @type {any} */ event) => setName(event.currentTarget.value)} /></label>
    <button type="submit" disabled=${busy || !name.trim()}>Make a checkpoint</button>
    ${problem && html`<span class="problem" role="alert">${problem}</span>`}</form>`;
}
