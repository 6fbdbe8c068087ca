// The tries of a project: several attempts at one task each.
import { at } from "./api.js";
import { html } from "./html.js";
import { useLoaded } from "./load.js";
import { counted } from "./plural.js";
import { toTry } from "./route.js";
import { clock, iso } from "./say.js";

/** Cards of the tries; nothing if there is none. @param {{project: string}} props */
export function Tries({ project }) {
  const { data, error } = useLoaded(at(project) + "/tries", (what, which) => which === project && what === "tries");
  if (error && !data) return html`<h2>Tries</h2><p class="problem" role="alert">${error.message}</p>`;
  if (!data?.length) return null;
  return html`<h2>Tries</h2><ul class="cards">${data.map((/** @type {any} */ one) => html`<${TryCard} key=${one.name} project=${project} one=${one} />`)}</ul>`;
}

/** @param {{project: string, one: any}} props */
function TryCard({ project, one }) {
  if (one.problem) return html`<li class="card"><h3 class="name">${one.name}</h3><p class="problem name">${one.problem}</p></li>`;
  return html`<li class="card"><h3><a class="name" href=${toTry(project, one.name)}>${one.name}</a></h3>
    <p><code class="name clip" title=${one.command}>${one.command}</code></p>
    <p class="row">${one.running && html`<span class="tag warn">running</span>`}
      <span class="count">${counted(one.attempts, "attempt")}</span><span class="count">${counted(one.results, "different result")}</span>
      <span class="count">${one.passed.toLocaleString("en")} passed</span>
      <time class="dim small" datetime=${iso(one.started)}>${clock(one.started)}</time></p>
    <div class="row"><a class="button primary" href=${toTry(project, one.name)}>Compare<span class="hidden"> the candidates of ${one.name}</span></a></div></li>`;
}
