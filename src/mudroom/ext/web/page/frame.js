// The frame of every view: breadcrumbs, tabs, and the state of the connection.
import { at, listen } from "./api.js";
import { spelled } from "./code.js";
import { QuestionsButton } from "./decide.js";
import { Fragment, html, useEffect, useState } from "./html.js";
import { Help, showHelp, useKeys } from "./keys.js";
import { useLoaded } from "./load.js";
import { toFork, toProject } from "./route.js";
import { makeStore } from "./store.js";
import { nextTheme, ThemeSwitch } from "./theme.js";
import { Toasts } from "./toast.js";
import { Confirmation } from "./dialog.js";

/** Number of undecided conflicts, by `project/fork`. */
export const conflicts = makeStore(/** @type {Record<string, number>} */ ({}));

/** @param {string} project @param {string} fork @param {number} count */
export function tellConflicts(project, fork, count) {
  const key = `${project}/${fork}`;
  if (conflicts.get()[key] !== count) conflicts.set({ ...conflicts.get(), [key]: count });
}

/** A project with its forks, as long as it is shown. @param {string | undefined} project */
export function usePlace(project) {
  return useLoaded(project ? at(project) : null, (what, which) => which === project && (what === "forks" || what === "applies"));
}

/** How the server can be reached: "" (it can), "lost" or "over". */
export function useConnection() {
  const [state, setState] = useState("");
  useEffect(() => listen((kind) => {
    if (kind === "hello") setState("");
    else if (kind === "lost") setState((now) => now || "lost");
    else if (kind === "over") setState("over");
  }), []);
  return state;
}

/** @param {{route: import("./route.js").Route, place: any, connection: string, children?: any}} props */
export function Frame({ route, place, connection, children }) {
  const { project, fork } = route;
  const go = (/** @type {string} */ hash) => () => void (location.hash = hash);
  useKeys("page", { theme: nextTheme, home: go("#/") });
  useKeys("fork", project && fork ? { "to-review": go(toFork(project, fork)), "to-conflicts": go(toFork(project, fork, "conflicts")), "to-watch": go(toFork(project, fork, "watch")) } : {});
  return html`<${Fragment}>
    <header class="top">
      <button type="button" class="skip" onClick=${() => document.querySelector("main")?.focus()}>Skip to the content</button>
      <${Crumbs} route=${route} place=${place} />
      ${project && fork && html`<${Tabs} project=${project} fork=${fork} view=${route.view} />`}
      <span class="grow"></span>
      <span class="row tools"><${QuestionsButton} /><${ThemeSwitch} />
        <button type="button" class="icon quiet" title="Shortcuts (?)" onClick=${showHelp}><span aria-hidden="true">?</span><span class="hidden">Shortcuts</span></button></span>
    </header>
    <div role="status" class=${connection === "lost" ? "banner warn lost" : "hidden"}>${connection === "lost" ? "The server does not answer: reconnecting…" : ""}</div>
    ${children}
    <${Toasts} /><${Confirmation} /><${Help} />
  </${Fragment}>`;
}

/** @param {{route: import("./route.js").Route, place: any}} props */
function Crumbs({ route, place }) {
  const { project, fork, tried, view } = route;
  const path = place?.path ?? "project";
  const here = (/** @type {boolean} */ is) => (is ? "page" : undefined);
  return html`<nav class="crumbs" aria-label="Where this is"><ol>
    <li><a href="#/" class="brand" aria-current=${here(view === "home")}>mudroom</a></li>
    ${view === "new" && html`<li><span aria-current="page">New session</span></li>`}
    ${project && html`<li><a href=${toProject(project)} class="name clip" title=${path} aria-current=${here(!fork && view === "project")}>${spelled(last(path))}</a></li>`}
    ${project && (fork || tried) && html`<li><span class="name clip" title=${fork ?? tried} aria-current="page">${fork ?? tried}</span></li>`}
  </ol></nav>`;
}

/** @param {string} path */
const last = (path) => path.slice(path.lastIndexOf("/", path.length - 2) + 1) || path;

/** @type {[string, string, string][]} */
const TABS = [["review", "Review", "1"], ["conflicts", "Conflicts", "2"], ["watch", "Watch", "3"]];

/** @param {{project: string, fork: string, view: string}} props */
function Tabs({ project, fork, view }) {
  const count = conflicts.use()[`${project}/${fork}`] ?? 0;
  return html`<nav class="tabs" aria-label="Views of this fork">${TABS.map(([name, label, key]) => html`
    <a key=${name} href=${toFork(project, fork, name)} aria-current=${name === view ? "page" : undefined} title=${`${label} (${key})`}>${label}
      ${name === "conflicts" && count > 0 && html` <span class="tag bad">${count}</span>`}</a>`)}</nav>`;
}

/** A message instead of a view. @param {{title: string, children?: any, busy?: boolean}} props */
export function Alone({ title, children, busy = false }) {
  return html`<main class="alone" tabindex="-1" aria-busy=${String(busy)}><h1>${title}</h1>${children}</main>`;
}

/** Shown when this browser is logged out. */
export function Over() {
  return html`<${Alone} title="This session of the page is over">
    <p>The server does not know this browser any more, or what this page has kept of its login is gone. Nothing is lost: forks stay where they are.</p>
    <p>To log in anew, open the address that this prints in a terminal:</p><pre class="panel order"><code>mudroom serve --link</code></pre>
    <p><button type="button" onClick=${() => location.reload()}>Try again</button></p></${Alone}>`;
}
