// Where a fork and the project do not go together: which files, and for each what becomes of it.
import { atFork, post, query } from "./api.js";
import { drawn } from "./code.js";
import { show } from "./diff.js";
import { tellConflicts } from "./frame.js";
import { Failed } from "./home.js";
import { html, useEffect, useMemo, useRef, useState } from "./html.js";
import { useKeys } from "./keys.js";
import { useNarrow } from "./layout.js";
import { useLoaded } from "./load.js";
import { answers, outcome, placed, places, TAKES } from "./merge.js";
import { Outcome, Panes, SIDE_NAMES, SIDES } from "./panes.js";
import { toFork } from "./route.js";
import { named } from "./sides.js";
import { plural, size } from "./wording.js";

/** @typedef {{id: string, path: string, reason: string, decided: boolean, places: number | null, base: any, ours: any, theirs: any, versions: string,
 *   regions?: import("./merge.js").Region[] | null, take?: string, secret?: boolean}} Conflict */

const MOVED = new Set(["moved", "decided", "not-found"]); // refusals after which one has to look again
/** What is decided. */
const DECIDED = /** @type {Record<string, string>} */ ({ ours: "decided: the project's", theirs: "decided: the fork's", delete: "decided: deleted", content: "decided: merged" });

/** @param {{project: string, fork: string, file?: string}} props `file`: the id of the one to begin with */
export function Conflicts({ project, fork, file }) {
  const mine = (/** @type {string} */ what, /** @type {string} */ where) => where === project && ["forks", "applies", "commands"].includes(what);
  const { data, error, reload } = useLoaded(atFork(project, fork) + "/conflicts", mine);
  const [asked, setAsked] = useState(file ?? "");
  const [note, setNote] = useState("");
  const chosen = useRef(/** @type {Map<string, import("./merge.js").Decisions>} */ (new Map())); // by file
  const based = useRef(/** @type {Map<string, string>} */ (new Map())); // on which versions that was chosen
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
  /** @type {Conflict[]} */
  const all = data.conflicts;
  const review = `#/p/${encodeURIComponent(project)}/f/${encodeURIComponent(fork)}/review`;
  if (!all.length) {
    return html`<main class="page conflicts"><h1>Conflicts</h1>
      ${note && html`<p class="banner" role="status">${note}</p>`}
      <p class="empty">What this fork changes goes together with the project as it is. <a href=${review}>Review it</a></p></main>`;
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
          <span class="name">${drawn(other.path)}</span><span class="dim small">${other.reason}</span>
          <span class=${"tag " + (other.decided ? "" : "warn")}>${other.decided ? DECIDED[other.take ?? ""] ?? "decided" : other.places ? plural(other.places, "place") + " open" : "open"}</span>
        </button></li>`)}</ul></nav>
      <${One} key=${one.id} project=${project} fork=${fork} row=${one} chosen=${chosen.current} based=${based.current} onDecided=${decided}
        onNext=${following && following !== one ? () => setAsked(following.id) : undefined} />
    </div>
  </main>`;
}

/** @param {{project: string, fork: string, row: Conflict, chosen: Map<string, import("./merge.js").Decisions>, based: Map<string, string>, onDecided: (note: string) => void, onNext?: () => void}} props */
function One({ project, fork, row, chosen, based, onDecided, onNext }) {
  const mine = (/** @type {string} */ what, /** @type {string} */ where) => where === project && ["forks", "applies"].includes(what);
  const { data, error, reload } = useLoaded(atFork(project, fork) + "/conflict" + query({ file: row.id }), mine);
  const [state, setState] = useState({ busy: false, problem: "", hint: "", moved: false });
  const own = useRef(""); // the versions that this view has decided about, or leaves: the next are looked at anew
  if (error && !data) return html`<section class="grow"><p class="problem" role="alert">${error.message}</p></section>`;
  if (!data) return html`<section class="grow" aria-busy="true"><div class="skeleton"></div></section>`;
  // What was chosen here is about the versions that were here then: it is not saved as if it were about others.
  const drafted = (chosen.get(row.id)?.size ?? 0) > 0;
  if (!drafted || (own.current && own.current !== data.versions)) {
    based.set(row.id, data.versions);
    own.current = "";
  }
  const versions = based.get(row.id) ?? data.versions;
  const overtaken = versions !== data.versions && !state.problem && !state.busy && !own.current;
  const decide = (/** @type {string} */ take, /** @type {any[]} */ regions = []) => {
    setState({ busy: true, problem: "", hint: "", moved: false });
    return post(`${atFork(project, fork)}/decide`, { id: data.id, versions, take, regions }).then(
      ({ beside }) => {
        own.current = data.versions; // the next others are those of this decision
        setState({ busy: false, problem: "", hint: "", moved: false });
        onDecided(beside ? `The fork's ${data.path} will be put beside the project's, as ${beside}.` : "");
        reload();
      },
      (problem) => setState({ busy: false, problem: problem.message, hint: problem.hint, moved: MOVED.has(problem.code) }),
    );
  };
  const again = () => {
    if (versions !== data.versions) based.set(row.id, data.versions);
    else own.current = data.versions; // those that come now
    setState({ busy: false, problem: "", hint: "", moved: false });
    onDecided("");
    reload();
  };
  const problem = (state.problem || overtaken) && html`<div class="banner bad" role="alert">${state.moved || overtaken
    ? html`<span>${state.problem || (data.decided ? "Somebody else has decided about it meanwhile" : "One side has changed meanwhile")}. What was chosen here is kept where it still fits.</span><button type="button" onClick=${again}>Look again</button>`
    : html`<span>${state.problem}${state.hint && ` (${state.hint})`}</span>`}</div>`;
  return html`<section class="grow conflict" aria-label=${"Conflict in " + data.path}>
    <div class="spread"><h2 class="name">${drawn(data.path)}</h2>
      <div class="row">${data.decided && html`<span class="tag">${DECIDED[data.take] ?? "decided"}</span><button type="button" disabled=${state.busy} onClick=${() => decide("undecide")}>Undecide</button>`}
        ${onNext && html`<button type="button" onClick=${onNext}>Next conflict</button>`}</div></div>
    <p>${data.reason}</p>
    ${data.places !== null && data.regions
      ? html`<${Text} data=${data} chosen=${chosen} busy=${state.busy} decide=${decide} problem=${problem} />`
      : html`<${Whole} data=${data} busy=${state.busy} decide=${decide} problem=${problem} />`}
  </section>`;
}

/** What can be decided place by place. @param {{data: any, chosen: Map<string, import("./merge.js").Decisions>, busy: boolean, problem: any, decide: (take: string, regions?: any[]) => void}} props */
function Text({ data, chosen, busy, problem, decide }) {
  const [decisions, setDecisions] = useState(() => chosen.get(data.id) ?? new Map());
  chosen.set(data.id, decisions);
  const [pane, setPane] = useState(SIDES[0]);
  const [root, narrow] = useNarrow(700);
  const sides = useMemo(() => (narrow ? [pane] : SIDES), [narrow, pane]);
  const regions = useMemo(() => placed(data.regions), [data]);
  const keys = useMemo(() => places(regions).map(({ key }) => key), [regions]);
  const pieces = useMemo(() => outcome(regions, decisions), [regions, decisions]);
  const ready = answers(regions, decisions);
  const settled = data.decided && keys.every((key) => !decisions.has(key));
  const open = keys.filter((key) => !decisions.has(key)).length;
  const set = (/** @type {string} */ key, /** @type {import("./merge.js").Decision | null} */ decision) => setDecisions((before) => {
    const next = new Map(before);
    if (decision) next.set(key, decision);
    else next.delete(key);
    return next;
  });
  const everywhere = (/** @type {import("./merge.js").Take} */ take) => setDecisions(new Map(keys.map((key) => [key, { take, text: null }])));
  usePlaceKeys(root, keys, set);
  return html`<div class="stack" ref=${root}>
    <div class="row"><button type="button" onClick=${() => everywhere("ours")}>Project's everywhere</button>
      <button type="button" onClick=${() => everywhere("theirs")}>Fork's everywhere</button>
      <span class="dim small">${settled ? "It is decided already; choose again to change that." : open ? `${plural(open, "place")} of ${keys.length} not decided` : "every place is decided"}</span></div>
    ${narrow && html`<div class="segments" role="group" aria-label="Side that is shown">${SIDES.map((side) => html`<button type="button" key=${side}
      aria-pressed=${pane === side ? "true" : "false"} onClick=${() => setPane(side)}>${SIDE_NAMES[side]}</button>`)}</div>`}
    <div class="panel"><${Panes} regions=${regions} decisions=${decisions} sides=${sides} settled=${settled} decide=${set} /></div>
    ${!settled && html`<details open class="panel"><summary class="panel-head">The result</summary><${Outcome} pieces=${pieces} /></details>`}
    <div class="row save">${problem}<button type="button" class="primary" disabled=${busy || ready === null} onClick=${() => ready && decide("regions", ready)}>Save decision</button>
      <${Others} data=${data} busy=${busy} decide=${decide} />
      ${ready === null && !settled && html`<span class="dim small">${plural(open, "place")} not decided yet</span>`}</div>
  </div>`;
}

/** What can be done with the file as a whole, besides its text. @param {{data: any, busy: boolean, decide: (take: string) => void}} props */
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

/** What can only be decided as a whole. @param {{data: any, busy: boolean, problem: any, decide: (take: string) => void}} props */
function Whole({ data, busy, problem, decide }) {
  return html`<div class="stack">
    <div class="sides">${SIDES.map((name) => html`<div key=${name}><h3>${SIDE_NAMES[name]}</h3><${Version} version=${data[name]} /></div>`)}</div>
    <p class="dim small">${data.secret ? "It holds secrets: nothing of it is shown, and it can only be decided as a whole." : "It cannot be merged line by line: it is decided as a whole."}</p>
    ${problem}
    <div class="row"><${Takes} data=${data} busy=${busy} decide=${decide} /></div>
  </div>`;
}

/** @param {{version: {side: any, path: string, known: boolean}}} props */
function Version({ version: { side, path, known } }) {
  if (!side.exists) return html`<p class="dim">${known ? "There is none." : "It is not known."}</p>`;
  return html`<p>${named(side)}, ${size(side.size)}${side.mode && `, mode ${side.mode}`}</p>
    <p class="small"><code class="name">${drawn(path)}</code>${side.target && html` <code class="name">→ ${drawn(side.target)}</code>`}</p>`;
}

/**
 * What keys do here: next and previous place; what becomes of the one that has the keyboard.
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
