// The page: shows the view of the address, in the frame that all views share.
import { arrive, begin } from "./api.js";
import { Conflicts } from "./conflict.js";
import { Questions } from "./decide.js";
import { keepFocus } from "./focus.js";
import { Alone, Frame, Over, useConnection, usePlace } from "./frame.js";
import { html, render, useEffect, useLayoutEffect, useState } from "./html.js";
import { Home, Project } from "./home.js";
import { isWanted } from "./push.js";
import { Review } from "./review.js";
import { routeOf, toProject } from "./route.js";
import { Start } from "./start.js";
import { Try } from "./try.js";
import { Visit } from "./visit.js";
import { Watch } from "./watch.js";

/** @type {Record<string, {title: string, make: (route: any, place: any, me: any, keep: (is: boolean) => void) => any}>} */
const VIEWS = {
  home: { title: "Projects", make: (_route, _place, me) => html`<${Home} me=${me} />` },
  new: { title: "New session", make: () => html`<${Start} />` },
  project: { title: "", make: ({ project }, place) => html`<${Project} project=${project} place=${place} />` },
  review: { title: "Review", make: ({ project, fork, file }, place, _me, keep) => html`<${Review} project=${project} fork=${fork} file=${file} place=${place.data} keep=${keep} />` },
  conflicts: { title: "Conflicts", make: ({ project, fork }) => html`<${Conflicts} project=${project} fork=${fork} />` },
  try: { title: "Candidates", make: ({ project, tried, file }) => html`<${Try} project=${project} tried=${tried} file=${file} />` },
  watch: { title: "Watch", make: ({ project, fork }) => html`<${Watch} project=${project} fork=${fork} />` },
  visit: { title: "A server in a fork", make: ({ to }) => html`<${Visit} to=${to} />` },
  nothing: { title: "Nothing here", make: () => html`<${Alone} title="There is nothing at this address"><p><a href="#/">All projects</a></p></${Alone}>` },
};

function useRoute() {
  const [route, setRoute] = useState(() => routeOf(location.hash));
  useEffect(() => {
    const changed = () => setRoute(routeOf(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

function App() {
  const route = useRoute();
  const connection = useConnection();
  const [me, setMe] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const start = () => begin().then((found) => (setProblem(null), setMe(found)), setProblem);
  useLayoutEffect(() => void start(), []); // before painting
  if (connection === "over" || problem?.status === 401) return html`<${Over} />`;
  if (problem) return html`<${Alone} title="mudroom"><p class="problem">${problem.message}</p><p>${problem.hint}</p>
    <p><button type="button" onClick=${start}>Try again</button></p></${Alone}>`;
  if (!me) return html`<main class="alone" aria-busy="true"><span class="hidden">Loading</span></main>`;
  return html`<${Place} route=${route} connection=${connection} me=${me} />`;
}

/** @param {{route: import("./route.js").Route, connection: string, me: any}} props */
function Place({ route, connection, me }) {
  const { view, project, fork, tried } = route;
  const place = usePlace(project);
  const [kept, keep] = useState(false); // the outcome of an apply is shown, with its undo: the fork may be gone by it
  const key = [view, project, fork, tried].join("\n");
  useArrival(key, [fork ?? tried, place.data?.path, VIEWS[view].title, "mudroom"]);
  return html`<${Frame} route=${route} place=${place.data} connection=${connection}>
    <${Questions} />
    ${isGone(route, place) && !kept ? html`<${Gone} route=${route} />` : html`<div class="view" key=${key}>${VIEWS[view].make(route, place, me, keep)}</div>`}
  </${Frame}>`;
}

/** @param {import("./route.js").Route} route @param {any} place */
function isGone({ project, fork }, place) {
  if (project && place.error?.status === 404) return true;
  return Boolean(fork && place.data && !place.data.forks.some((/** @type {any} */ one) => one.name === fork));
}

/** @param {{route: import("./route.js").Route}} props */
function Gone({ route: { project, fork } }) {
  const all = html`<a href="#/">All projects</a>`;
  if (!project || !fork) return html`<${Alone} title="There is no such project"><p>It may have been removed meanwhile.</p><p>${all}</p></${Alone}>`;
  return html`<${Alone} title="This fork is gone"><p><span class="name">${fork}</span> was applied and removed, or discarded, meanwhile.</p>
    <p class="row"><a href=${toProject(project)}>Its project</a> ${all}</p></${Alone}>`;
}

/** A new view sets the title and takes the focus, like a loaded page. @param {string} key @param {(string | undefined)[]} titles */
function useArrival(key, titles) {
  const title = titles.filter(Boolean).join(" · ");
  useEffect(() => void (document.title = title), [title]);
  useLayoutEffect(() => { // now, not a frame later: the user may have moved the focus by then
    const main = document.querySelector("main");
    if (!main || first) return void (first = false);
    main.tabIndex = -1;
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [key]);
}

let first = true;

arrive(isWanted);
keepFocus();
render(html`<${App} />`, /** @type {Element} */ (document.getElementById("app")));
