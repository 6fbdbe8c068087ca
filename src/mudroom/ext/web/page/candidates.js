// The candidates of a try as a table, the best first, with the report of each.
import { at } from "./api.js";
import { html, useMemo, useState } from "./html.js";
import { useLoaded } from "./load.js";
import { Printed } from "./output.js";
import { listed, verdict } from "./pair.js";
import { toFork } from "./route.js";
import { Screen } from "./screen.js";

/** @type {Record<string, string>} */
const MARKS = { passed: "good", failed: "bad", error: "bad", refused: "bad" };

/** @param {{project: string, tried: string, candidates: any[]}} props */
export function Candidates({ project, tried, candidates }) {
  return html`<div class="scroll panel" tabindex="0" role="group" aria-label="Table of candidates"><table class="rows candidates" aria-label="Candidates, the best first">
    <thead><tr><th scope="col">Attempts</th><th scope="col">Verdict</th><th scope="col" class="number">Score</th><th scope="col" class="number">Files</th>
      <th scope="col" class="number">Lines</th><th scope="col" class="number">Seconds</th><th scope="col">To do</th></tr></thead>
    ${candidates.map((/** @type {any} */ one) => html`<${Row} key=${one.attempts[0]} project=${project} tried=${tried} one=${one} />`)}</table></div>`;
}

/** @param {{project: string, tried: string, one: any}} props */
function Row({ project, tried, one }) {
  const [open, setOpen] = useState(false);
  const name = `attempt ${one.attempts[0]}`;
  const to = one.fork && toFork(project, one.fork);
  return html`<tbody><tr>
    <th scope="row"><span class="count">${listed(one.attempts)}</span>${one.best && html` <span class="tag good">best</span>`}</th>
    <td><span class=${"tag " + (MARKS[one.state] ?? "")}>${verdict(one)}</span>${one.note && html` <span class="name small">${one.note}</span>`}</td>
    <td class="number">${one.score === null ? "" : one.score.toLocaleString("en")}</td>
    <td class="number">${one.added > 0 && html`<span class="plus">+${one.added.toLocaleString("en")}</span> `}${one.modified.toLocaleString("en")}<span class="hidden"> modified</span>${one.deleted > 0 && html` <span class="minus">−${one.deleted.toLocaleString("en")}</span>`}</td>
    <td class="number">${one.lines.toLocaleString("en")}</td><td class="number">${one.seconds.toLocaleString("en", { maximumFractionDigits: 1 })}</td>
    <td><span class="row">${to && html`<a class=${"button" + (one.best ? " primary" : "")} href=${to}>Review<span class="hidden"> ${name}</span></a>`}
      <button type="button" class="quiet" aria-expanded=${String(open)} onClick=${() => setOpen(!open)}>Output<span class="hidden"> of the judge of ${name}</span></button></span></td></tr>
    ${open && html`<tr><td colspan="7"><${Report} project=${project} tried=${tried} number=${one.attempts[0]} /></td></tr>`}</tbody>`;
}

/** @param {{project: string, tried: string, number: number}} props */
function Report({ project, tried, number }) {
  const { data, error } = useLoaded(`${at(project)}/tries/${encodeURIComponent(tried)}/attempts/${number}`, (what, which) => which === project && what === "tries");
  const lines = useMemo(() => {
    const screen = new Screen();
    screen.write(data?.report ?? "");
    return screen.lines;
  }, [data]);
  if (error && !data) return html`<p class="problem" role="alert">${error.message}</p>`;
  if (!data) return html`<p aria-busy="true" class="dim">…</p>`;
  return html`<p class="small"><code class="name">${data.command}</code></p>
    ${data.report ? html`<pre class="printed" tabindex="0" aria-label=${`Output of attempt ${number}`}>${lines.map((line) => html`<${Printed} key=${line.id} line=${line} />`)}</pre>`
      : html`<p class="dim">Nothing was printed.</p>`}`;
}
