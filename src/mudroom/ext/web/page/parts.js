// A file by its parts: packages, cells, keys, tables, members.
import { html } from "./html.js";
import { useLoaded } from "./load.js";
import { view } from "./source.js";

/** @typedef {{kind: "added" | "removed" | "changed", label: string, before: string, after: string, note: string, flagged: boolean, lines: string[], rows: PartRow[]}} PartRow */

const SIGNS = { added: "+", removed: "-", changed: "~" };

/**
 * @param {{place: import("./source.js").Place, parts: string, children?: any}} props
 * `children`: what is shown if there is no view
 */
export function Parts({ place, parts, children }) {
  const { data, error } = useLoaded(view(place));
  if (!data && !error) return html`<p aria-busy="true" class="dim">…</p>`;
  const problem = error ? error.message : data.problem;
  if (problem) return html`<p role="status" class="dim">No ${parts}: ${problem}.</p>${children}`;
  return html`<p role="status"><strong>${data.summary}</strong></p>
    ${data.rows.length > 0 && html`<table class="parts" aria-label=${`Changed ${parts}`}>
      <thead><tr><th scope="col"><span class="hidden">Change</span></th><th scope="col">${parts}</th><th scope="col">Before</th><th scope="col">After</th></tr></thead>
      <tbody>${data.rows.map((/** @type {PartRow} */ row, /** @type {number} */ at) => rows(row, String(at), 0))}</tbody></table>`}
    ${data.notes.map((/** @type {string} */ note) => html`<p key=${note} class="dim">${note}</p>`)}`;
}

/** A row, its lines and the rows below it. @param {PartRow} row @param {string} key @param {number} depth @returns {any} */
function rows(row, key, depth) {
  const name = `${row.kind}${row.flagged ? " flagged" : ""}${depth ? " inner" : ""}`;
  return [html`<tr key=${key} class=${name}><td class="sign"><span aria-hidden="true">${SIGNS[row.kind]}</span><span class="hidden">${row.kind}</span></td>
      <th scope="row">${row.label}${row.note && html` <span class=${row.flagged ? "note" : "dim"}>${row.note}</span>`}</th>
      <td>${row.before && html`<span class="hidden">before: </span>${row.before}`}</td><td>${row.after && html`<span class="hidden">after: </span>${row.after}`}</td></tr>`,
    row.lines.length > 0 && html`<tr key=${key + "l"} class="text"><td></td><td colspan="3"><pre tabindex="0" aria-label=${`Changed lines of ${row.label}`}>${row.lines.map((line, at) =>
      html`<span key=${at} class=${line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : line.startsWith("@@") ? "dim" : ""}>${line}${"\n"}</span>`)}</pre></td></tr>`,
    row.rows.map((inner, at) => rows(inner, `${key} ${at}`, depth + 1))];
}
