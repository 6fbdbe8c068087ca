// The conflicts of a fork with the project, and their decisions.
import { atFork, post, query } from "./api.js";
import { spelled } from "./code.js";
import { show } from "./diff.js";
import { isDrafted, NOTHING, put } from "./drafts.js";
import { tellConflicts } from "./frame.js";
import { Failed } from "./home.js";
import { html, useEffect, useMemo, useRef, useState } from "./html.js";
import { useKeys } from "./keys.js";
import { useNarrow } from "./layout.js";
import { useLoaded } from "./load.js";
import { answers, decided as decidedOf, outcome, places, TAKES } from "./merge.js";
import { useOpened } from "./opened.js";
import { Panes, SIDE_NAMES, SIDES } from "./panes.js";
import { editedLines, Result } from "./result.js";
import { toFork } from "./route.js";
import { named } from "./sides.js";
import { TAKE_WORDS } from "./tables.js";
import { Unfitting, unsavedOf, useKept } from "./unsaved.js";
import { plural, size } from "./wording.js";

/** @typedef {{id: string, path: string, reason: string, decided: boolean, places: number | null, base: any, ours: any, theirs: any, versions: string,
 *   regions?: import("./merge.js").Region[] | null, take?: string, secret?: boolean, result?: import("./merge.js").Result | null}} Conflict */
/** @typedef {import("./drafts.js").Draft} Draft */

const MOVED = new Set(["moved", "decided", "not-found"]); // refusals after which the conflict has to be loaded again
/** @typedef {{regions?: any[], lines?: string[], begun?: string[]}} How as the API has it */
/** `moved`: the conflict has to be loaded again. `mine`: the edit can be saved without the changes since it began */
const FRESH = { busy: false, problem: "", hint: "", moved: false, mine: false };

/** The decision. */

/** @param {{project: string, fork: string, file?: string}} props `file`: the id of the one to begin with */
export function Conflicts({ project, fork, file }) {
  const mine = (/** @type {string} */ what, /** @type {string} */ where) => where === project && ["forks", "applies", "commands"].includes(what);
  const { data, error, reload } = useLoaded(atFork(project, fork) + "/conflicts", mine);
  const [asked, setAsked] = useState(file ?? "");
  const [note, setNote] = useState("");
  const decided = (/** @type {string} */ said) => {
    setNote(said);
    reload();
  };
  const open = data?.conflicts.filter((/** @type {Conflict} */ one) => !one.decided).length;
  useEffect(() => {
    if (open !== undefined) tellConflicts(project, fork, open);
  }, [open]);
  if (error && !data) return html`<${Failed} error=${error} again=${reload} more=${error.code === "busy" && html`<a class="button" href=${toFork(project, fork, "watch")}>Watch it, or end it</a>`} />`;
  if (!data) return html`<main class="page conflicts" aria-busy="true"><div class="skeleton"></div></main>`;
  const unsaved = unsavedOf(project, fork, data.created);
  /** @type {Conflict[]} */
  const all = data.conflicts;
  const review = `#/p/${encodeURIComponent(project)}/f/${encodeURIComponent(fork)}/review`;
  if (!all.length) {
    return html`<main class="page conflicts"><h1>Conflicts</h1>
      ${note && html`<p class="banner" role="status">${note}</p>`}
      <p class="empty">The changes of this fork do not conflict with the project. <a href=${review}>Review it</a></p></main>`;
  }
  const left = all.filter((one) => !one.decided);
  const one = all.find(({ id }) => id === asked) ?? left[0] ?? all[0];
  const index = all.indexOf(one);
  const following = [...all.slice(index + 1), ...all.slice(0, index)].find((other) => !other.decided);
  return html`<main class="page conflicts">
    <h1>Conflicts <span class="count">${all.length - left.length} of ${all.length} decided</span></h1>
    ${!left.length && html`<p class="banner good" role="status">All conflicts are decided. <a href=${review}>Apply</a></p>`}
    ${error && html`<p class="banner warn" role="alert">${error.message}${error.hint && `: ${error.hint}`}</p>`}
    ${note && html`<p class="banner" role="status">${note}</p>`}
    <div class="conflict-views">
      <nav aria-label="Files in conflict"><ul class="panel">${all.map((other) => html`<li key=${other.id}>
        <button type="button" class="quiet" aria-current=${other === one ? "true" : undefined} onClick=${() => setAsked(other.id)}>
          <span class="name">${spelled(other.path)}</span><span class="dim small">${other.reason}</span>
          <span class=${"tag " + (other.decided ? "" : "warn")}>${other.decided ? decisionWords(other) : other.places ? plural(other.places, "place") + " open" : "open"}</span>
        </button></li>`)}</ul></nav>
      <${One} key=${`${data.created} ${one.id}`} project=${project} fork=${fork} row=${one} unsaved=${unsaved} onDecided=${decided}
        onNext=${following && following !== one ? () => setAsked(following.id) : undefined} />
    </div>
  </main>`;
}

/** @typedef {{project: string, fork: string, row: Conflict, unsaved: import("./drafts.js").Unsaved, onDecided: (note: string) => void, onNext?: () => void}} OneProps */

/** @param {OneProps} props */
function One(props) {
  const { project, fork, row } = props;
  const mine = (/** @type {string} */ what, /** @type {string} */ where) => where === project && ["forks", "applies"].includes(what);
  const { data, error, reload } = useLoaded(atFork(project, fork) + "/conflict" + query({ file: row.id }), mine);
  if (error && !data) return html`<section class="grow"><p class="problem" role="alert">${error.message}</p></section>`;
  if (!data) return html`<section class="grow" aria-busy="true"><div class="skeleton"></div></section>`;
  return html`<${Loaded} ...${props} data=${data} reload=${reload} />`;
}

/** @param {OneProps & {data: any, reload: () => void}} props */
function Loaded({ project, fork, row, unsaved, onDecided, onNext, data, reload }) {
  const place = atFork(project, fork);
  const [, redraw] = useState(0);
  const own = useOwn(row.id, unsaved, data);
  useKept();
  const draft = unsaved.drafts.get(row.id) ?? NOTHING;
  const change = (/** @type {Partial<Draft>} */ next) => {
    put(unsaved, row.id, next);
    redraw((count) => count + 1);
  };
  const { state, decide, again, overtaken } = useDecision({ place, id: row.id, based: unsaved.based, own, data, reload, change, onDecided });
  const problem = (state.problem || overtaken) && html`<${Trouble} state=${state} overtaken=${overtaken} data=${data} edited=${draft.edited} again=${again} decide=${decide} />`;
  const deciding = { data, draft, change, busy: state.busy, decide, problem };
  return html`<section class="grow conflict" aria-label=${"Conflict in " + data.path}>
    <div class="spread"><h2 class="name">${spelled(data.path)}</h2>
      <div class="row">${data.decided && html`<span class="tag">${decisionWords(data)}</span><button type="button" disabled=${state.busy} onClick=${() => decide("undecide")}>Undecide</button>`}
        ${onNext && html`<button type="button" onClick=${onNext}>Next conflict</button>`}</div></div>
    <p>${data.reason}</p>
    ${data.rule && !data.decided && html`<p class="row banner"><span class="grow">Merged by rule: ${data.rule}.</span>
      <button type="button" disabled=${state.busy} onClick=${() => decide("rule")}>Take it</button></p>`}
    ${data.command && !data.decided && html`<p class="row banner"><span class="grow"><code>mudroom resolve</code> with <code>--rule</code> makes it again: <code class="name">${spelled(data.command)}</code></span></p>`}
    ${unsaved.lost.has(row.id) && html`<p class="banner warn">Your unsaved choices here were too large to be kept.</p>`}
    ${data.places !== null && data.regions ? html`<${Text} place=${place} ...${deciding} />` : html`<${Undivided} ...${deciding} />`}
  </section>`;
}

/** What was decided, and by which rule or program. @param {{how?: string, take?: string}} conflict */
const decisionWords = ({ how, take }) => (how ? `decided: ${how}` : TAKE_WORDS[take ?? ""] ?? "decided");

/** @typedef {{current: {versions: string, saved: Partial<Draft>}}} Own the versions that this view has decided about, or is leaving:
 *   the next are looked at anew. `saved`: what is no draft any more then */

/**
 * Choices are bound to the versions they were made for: they are not saved for other versions.
 * @param {string} id @param {import("./drafts.js").Unsaved} unsaved @param {any} data @returns {Own}
 */
function useOwn(id, unsaved, data) {
  const own = useRef({ versions: "", saved: /** @type {Partial<Draft>} */ ({}) });
  const left = own.current.versions && own.current.versions !== data.versions;
  if (left) put(unsaved, id, own.current.saved);
  if (left || !isDrafted(unsaved.drafts.get(id))) {
    unsaved.based.set(id, data.versions);
    own.current = { versions: "", saved: {} };
  }
  return own;
}

/**
 * Decide about the shown versions, and load them again.
 * @param {{place: string, id: string, based: Map<string, string>, own: Own, data: any, reload: () => void,
 *   change: (next: Partial<Draft>) => void, onDecided: (note: string) => void}} what
 */
function useDecision({ place, id, based, own, data, reload, change, onDecided }) {
  const [state, setState] = useState(FRESH);
  const versions = based.get(id) ?? data.versions;
  const overtaken = versions !== data.versions && !state.problem && !state.busy && !own.current.versions;
  const decide = (/** @type {string} */ take, /** @type {How} */ how = {}) => {
    setState({ ...FRESH, busy: true });
    return post(`${place}/decide`, { id: data.id, versions, take, ...how }).then(
      ({ beside, conflict }) => {
        const saved = take === "undecide" ? {} : take === "text" ? { edited: null } : { places: null };
        if (conflict?.versions === data.versions) change(saved); // the same version again
        else own.current = { versions: data.versions, saved }; // the next change of versions is this decision
        setState(FRESH);
        onDecided(beside ? `The fork's ${data.path} will be put beside the project's, as ${beside}.` : "");
        reload();
      },
      (problem) => setState({ busy: false, problem: problem.message, hint: problem.hint, moved: MOVED.has(problem.code), mine: problem.code === "overlaps" }),
    );
  };
  const again = () => {
    if (versions !== data.versions) based.set(id, data.versions);
    else own.current = { versions: data.versions, saved: {} }; // the versions that arrive now
    setState(FRESH);
    onDecided("");
    reload();
  };
  return { state, decide, again, overtaken };
}

/** @param {{state: typeof FRESH, overtaken: boolean, data: any, edited: Draft["edited"], again: () => void, decide: Deciding["decide"]}} props */
function Trouble({ state, overtaken, data, edited, again, decide }) {
  return html`<div class="banner bad" role="alert">${state.moved || overtaken
    ? html`<span>${state.problem || (data.decided ? "Somebody else has decided about it meanwhile" : "One side has changed meanwhile")}. Choices made here are kept where they still fit.</span><button type="button" onClick=${again}>Look again</button>`
    : html`<span>${state.problem}${state.hint && ` (${state.hint})`}</span>
      ${state.mine && edited && html`<button type="button" disabled=${state.busy} onClick=${() => decide("text", { lines: editedLines(edited).lines })}>Save mine, drop the other changes</button>`}`}</div>`;
}

/** @typedef {{data: any, draft: Draft, change: (next: Partial<Draft>) => void, busy: boolean, problem: any, decide: (take: string, how?: How) => void}} Deciding */

/** A text, decided place by place. @param {Deciding & {place: string}} props */
function Text({ place, data, draft, change, busy, problem, decide }) {
  const [pane, setPane] = useState(SIDES[0]);
  const [root, narrow] = useNarrow(700);
  const sides = useMemo(() => (narrow ? [pane] : SIDES), [narrow, pane]);
  const { regions, open: show_, trouble } = useOpened(place, data);
  const keys = useMemo(() => places(regions).map(({ key }) => key), [regions]);
  const known = useMemo(() => decidedOf(regions, data.result), [regions, data]);
  const off = Boolean(draft.edited && data.result);
  const chosen = off ? null : draft.places;
  const decisions = chosen ?? known ?? NONE;
  const settled = data.decided && !chosen;
  const pieces = useMemo(() => (settled && !known ? null : outcome(regions, decisions)), [regions, decisions, settled]);
  const ready = settled ? null : answers(regions, decisions);
  const open = settled ? 0 : keys.filter((key) => !decisions.has(key)).length;
  const set = (/** @type {string} */ key, /** @type {import("./merge.js").Decision | null} */ decision) => {
    if (off) return;
    const next = new Map(decisions);
    if (decision) next.set(key, decision);
    else next.delete(key);
    change({ places: next });
  };
  const everywhere = (/** @type {import("./merge.js").Take} */ take) => change({ places: new Map(keys.map((key) => [key, { take, text: null }])) });
  usePlaceKeys(root, keys, set);
  return html`<div class="stack" ref=${root}>
    <div class="row"><button type="button" disabled=${off} onClick=${() => everywhere("ours")}>Project's everywhere</button>
      <button type="button" disabled=${off} onClick=${() => everywhere("theirs")}>Fork's everywhere</button>
      <span class="dim small">${settled ? (known ? "It is decided; choose again to change that." : "It is decided, not place by place: the result says how.") : open ? `${plural(open, "place")} of ${keys.length} not decided` : "every place is decided"}</span>
      ${data.decided && !settled && html`<button type="button" class="quiet small" onClick=${() => change({ places: null })}>Back to the decision</button>`}</div>
    ${narrow && html`<div class="segments" role="group" aria-label="Side that is shown">${SIDES.map((side) => html`<button type="button" key=${side}
      aria-pressed=${pane === side ? "true" : "false"} onClick=${() => setPane(side)}>${SIDE_NAMES[side]}</button>`)}</div>`}
    <div class="panel"><${Panes} regions=${regions} decisions=${decisions} sides=${sides} settled=${settled} off=${off} decide=${set} open=${show_} /></div>
    ${trouble && html`<p class="problem" role="alert">${trouble}</p>`}
    <${Unfitting} places=${draft.places} keys=${keys} drop=${() => change({ places: new Map([...decisions].filter(([key]) => keys.includes(key))) })} />
    <${Result} data=${data} pieces=${pieces} settled=${settled} edited=${draft.edited} edit=${(/** @type {Draft["edited"]} */ edited) => change({ edited })} />
    <div class="row save">${problem}${!off && html`<${Others} data=${data} busy=${busy} decide=${decide} />`}<span class="grow"></span>
      ${open > 0 && html`<span class="dim small">${plural(open, "place")} not decided yet</span>`}
      ${off ? html`<${SaveEdited} draft=${draft} busy=${busy} decide=${decide} />`
        : html`<button type="button" class="primary" disabled=${busy || ready === null} onClick=${() => ready && decide("regions", { regions: ready })}>Save decision</button>`}</div>
  </div>`;
}

/** @type {import("./merge.js").Decisions} */
const NONE = new Map();

/** @param {{draft: Draft, busy: boolean, decide: Deciding["decide"]}} props */
const SaveEdited = ({ draft, busy, decide }) => html`<button type="button" class="primary" disabled=${busy} onClick=${() => draft.edited && decide("text", editedLines(draft.edited))}>Save the whole result</button>`;

/** Decisions about the whole file. @param {{data: any, busy: boolean, decide: (take: string) => void}} props */
const Others = ({ data, busy, decide }) => html`<details class="others"><summary>The whole file</summary><div class="row"><${Takes} data=${data} busy=${busy} decide=${decide} /></div></details>`;

/** @param {{data: any, busy: boolean, decide: (take: string) => void}} props */
function Takes({ data, busy, decide }) {
  const { ours, theirs, places: text } = data;
  const two = ours.side.exists && theirs.side.exists;
  const files = ours.side.type === "file" && theirs.side.type === "file";
  const choices = /** @type {[string, string, boolean][]} */ ([
    ["ours", ours.side.exists ? "Keep the project's" : "Keep it deleted", true],
    ["theirs", theirs.side.exists ? "Take the fork's" : "Delete it, as the fork does", true],
    ["both", "Keep both, the fork's beside it", two && files && text === null],
    ["delete", "Delete it", two],
  ]);
  return choices.filter(([, , possible]) => possible).map(([take, label]) => html`<button type="button" key=${take} disabled=${busy}
    onClick=${() => decide(take)}>${label}</button>`);
}

/** A file that can only be decided as a whole. @param {Deciding} props */
function Undivided({ data, draft, change, busy, problem, decide }) {
  return html`<div class="stack">
    <div class="sides">${SIDES.map((name) => html`<div key=${name}><h3>${SIDE_NAMES[name]}</h3><${Version} version=${data[name]} /></div>`)}</div>
    <p class="dim small">${data.secret ? "It holds secrets: nothing of it is shown, and it can only be decided as a whole."
    : data.places ? html`It conflicts at ${plural(data.places, "place")}, and is too long to be shown place by place: decide it as a whole, or in an editor, with <code>mudroom resolve --edit</code>.`
      : "It cannot be merged line by line: it is decided as a whole."}</p>
    <${Unfitting} places=${draft.places} keys=${[]} drop=${() => change({ places: null })} />
    <${Result} data=${data} pieces=${null} settled=${data.decided} edited=${draft.edited} edit=${(/** @type {Draft["edited"]} */ edited) => change({ edited })} />
    ${problem}
    <div class="row">${draft.edited && data.result ? html`<${SaveEdited} draft=${draft} busy=${busy} decide=${decide} />` : html`<${Takes} data=${data} busy=${busy} decide=${decide} />`}</div>
  </div>`;
}

/** @param {{version: {side: any, path: string, known: boolean}}} props */
function Version({ version: { side, path, known } }) {
  if (!side.exists) return html`<p class="dim">${known ? "There is none." : "It is not known."}</p>`;
  return html`<p>${named(side)}, ${size(side.size)}${side.mode && `, mode ${side.mode}`}</p>
    <p class="small"><code class="name">${spelled(path)}</code>${side.target && html` <code class="name">→ ${spelled(side.target)}</code>`}</p>`;
}

/**
 * Keys: next and previous place; decide the focused place.
 * @param {{current: any}} root @param {string[]} keys @param {(key: string, decision: import("./merge.js").Decision) => void} set
 */
function usePlaceKeys(root, keys, set) {
  const places_ = () => /** @type {HTMLElement[]} */ ([...root.current.querySelectorAll("tbody.place")]);
  const at = () => places_().findIndex((one) => one.contains(document.activeElement));
  const take = (/** @type {import("./merge.js").Take} */ side) => () => {
    const key = keys[at()];
    if (key === undefined) return false;
    set(key, { take: side, text: null });
  };
  useKeys("conflict", {
    "next-place": () => show(places_()[Math.min(at() + 1, keys.length - 1)]),
    "previous-place": () => show(places_()[Math.max(at() - 1, 0)]),
    ...Object.fromEntries(TAKES.map((side) => [side, take(side)])),
  });
}
