// Network requests of commands, allowed and denied.
import { at } from "./api.js";
import { html, useState } from "./html.js";
import { usePages } from "./pages.js";
import { clock, iso, size } from "./say.js";

/** @param {{project: string, fork?: string}} props */
export function Flows({ project, fork }) {
  const [denied, setDenied] = useState(false);
  const { rows, following, error, busy, more } = usePages(at(project) + "/flows", { fork, denied: denied ? "true" : "", count: 100 }, "flows", project);
  return html`<section class="stack" aria-label="Network">
    <label class="check"><input type="checkbox" checked=${denied} onChange=${(/** @type {any} */ event) => setDenied(event.currentTarget.checked)} /><span>only what was refused</span></label>
    ${error && html`<p class="problem" role="alert">${error.message}</p>`}
    ${!rows && !error && html`<div aria-busy="true"><div class="skeleton"></div><div class="skeleton"></div></div>`}
    ${rows && !rows.length && html`<p class="empty">${denied ? "Nothing was refused." : "No command has wanted anything of the network yet."}</p>`}
    ${rows && rows.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Exchanges with the network"><table class="rows flows">
      <thead><tr><th>When</th><th>Verdict</th><th>Host</th>${!fork && html`<th>Fork</th>`}<th>Why</th><th class="number">Out</th><th class="number">In</th></tr></thead>
      <tbody>${rows.map((/** @type {any} */ one) => html`<tr key=${one.number} title=${one.line}>
        <td class="dim small"><time datetime=${iso(one.time)}>${clock(one.time)}</time></td>
        <td><span class=${"tag " + (one.verdict === "allow" ? "intact" : "bad")}>${one.verdict === "allow" ? "allowed" : one.verdict === "deny" ? "refused" : one.verdict}</span></td>
        <td class="host"><span class="name mono">${one.host}${one.port ? `:${one.port}` : ""}</span></td>${!fork && html`<td class="dim small name">${one.fork}</td>`}
        <td class="small why"><span class="name">${[one.times > 1 && `${one.times.toLocaleString("en")} times`, one.reason, one.rule].filter(Boolean).join(" · ")}</span></td>
        <td class="number small">${one.sent ? size(one.sent) : ""}</td><td class="number small">${one.received ? size(one.received) : ""}</td></tr>`)}</tbody></table></div>`}
    ${following !== null && following !== undefined && html`<p><button type="button" disabled=${busy} onClick=${more}>${busy ? "Looking…" : "Older ones"}</button></p>`}
  </section>`;
}
