// A try: its candidates, the paths where they differ, and two of them side by side at a path. Nothing is applied here: a
// candidate is applied in its own review.
import { at, get, query } from "./api.js";
import { Candidates } from "./candidates.js";
import { spelled } from "./code.js";
import { Diff } from "./diff.js";
import { Failed, Waiting } from "./home.js";
import { html, useEffect, useMemo, useState } from "./html.js";
import { useKeys } from "./keys.js";
import { HEIGHT, Lines } from "./list.js";
import { useLoaded } from "./load.js";
import { alike, BASE, canShow, listed, pairOf, sideName } from "./pair.js";
import { counted } from "./plural.js";
import { toFork, toTry } from "./route.js";

const MOST = 20_000; // paths in a request
const ROOM = 48; // pixels below the list, for a button
/** @type {Record<string, string>} */
const EXTENTS = { different: "Different", some: "Only in some", unknown: "Not compared", same: "The same in all" };
/** @type {Record<string, string>} */
const VERBS = { added: "added", modified: "modified", deleted: "deleted", renamed: "renamed" };
/** @type {Record<string, string>} */
const ENDS = { until: "The other attempts were ended when enough had passed.", budget: "Attempts were ended: the budget was used up.", interrupted: "mudroom was ended while it ran.", judge: "The judge cannot be run." };

/** @param {{project: string, tried: string, file?: string}} props */
export function Try({ project, tried, file }) {
  const [extent, setExtent] = useState("");
  const path = `${at(project)}/tries/${encodeURIComponent(tried)}`;
  const { data: counts, error, reload } = useLoaded(path + query({ count: 0 }), (what, which) => which === project && (what === "tries" || what === "forks"));
  if (error && !counts) return html`<${Failed} error=${error} again=${() => reload()} />`;
  if (!counts) return html`<${Waiting} label="Comparing the candidates" />`;
  const first = Object.keys(EXTENTS).find((name) => counts.counts[name] > 0) ?? "different";
  const shown = counts.counts[extent] > 0 ? extent : first;
  return html`<main class="page try" tabindex="-1">
    <h1 class="name">${tried}</h1>
    ${error && html`<p class="problem" role="alert">${error.message}</p>`}
    <${About} data=${counts} />
    <${Candidates} project=${project} tried=${tried} candidates=${counts.candidates} />
    <h2>What differs</h2>
    <${Extents} counts=${counts.counts} shown=${shown} show=${setExtent} />
    <${Left} data=${counts} />
    <${Paths} key=${shown} project=${project} tried=${tried} path=${path} extent=${shown} fingerprint=${counts.fingerprint} file=${file} /></main>`;
}

/** @param {{data: any}} props */
function About({ data: { row, base, end, note } }) {
  return html`<p><code class="name">${row.command}</code></p>
    <p class="row">${row.running && html`<span class="tag warn">running</span>`}<span class="count">${counted(row.attempts, "attempt")}</span>
      <span class="count">${counted(row.results, "different result")}</span>
      ${base && html`<span class="tag name">from ${base}</span>`}
      ${row.judge ? html`<span class="dim small">Judged by <code class="name">${row.judge}</code></span>` : html`<span class="dim small">Judged by the exit code of each attempt</span>`}</p>
    ${!row.best && !row.running && html`<p class="banner warn">No attempt passed.</p>`}
    ${(ENDS[end] || note) && html`<p class="banner name">${[ENDS[end], note].filter(Boolean).join(" ")}</p>`}
    <p class="dim small">Nothing is applied by a try. Review a candidate to apply it.</p>`;
}

/** @param {{counts: Record<string, number>, shown: string, show: (extent: string) => void}} props */
function Extents({ counts, shown, show }) {
  return html`<div class="segments" role="group" aria-label="Which paths are listed">${Object.entries(EXTENTS).filter(([name]) => name !== "unknown" || counts.unknown > 0).map(([name, label]) => html`
    <button key=${name} type="button" disabled=${!counts[name]} aria-pressed=${String(name === shown && counts[name] > 0)} onClick=${() => show(name)}>${label} ${counts[name].toLocaleString("en")}</button>`)}</div>`;
}

/** What was not compared. @param {{data: any}} props */
function Left({ data }) {
  const compared = data.candidates.filter((/** @type {any} */ one) => one.compared).length;
  const left = [
    data.paths_left > 0 && `${counted(data.paths_left, "more path")} not compared`,
    data.candidates_left > 0 && `${counted(data.candidates_left, "more candidate")} not compared: only the best are`,
  ].filter(Boolean);
  return html`${compared === 0 && html`<p class="empty panel">No candidate has changes that can be read.</p>`}
    ${compared === 1 && html`<p class="banner">Only one candidate has changes that can be read.</p>`}
    ${left.length > 0 && html`<p class="banner warn">${left.join("; ")}.</p>`}`;
}

/** The paths of one extent. @param {string} path @param {string} extent @param {string} fingerprint */
function usePaths(path, extent, fingerprint) {
  const [state, setState] = useState(/** @type {any} */ ({ data: null, paths: [], error: null }));
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const aborter = new AbortController();
    get(path + query({ extent }), aborter.signal).then(
      (data) => setState({ data, paths: data.paths, error: null }),
      (error) => aborter.signal.aborted || setState((/** @type {any} */ before) => ({ ...before, error })),
    );
    return () => aborter.abort();
  }, [path, extent, fingerprint, turn]);
  const more = () => {
    const { data, paths } = state;
    get(path + query({ extent, first: paths.length, count: MOST, reviewed: data.fingerprint })).then(
      (next) => setState((/** @type {any} */ now) => (now.data === data ? { data, paths: [...paths, ...next.paths], error: null } : now)),
      (error) => (error.code === "moved" ? setTurn((count) => count + 1) : setState((/** @type {any} */ now) => ({ ...now, error }))),
    );
  };
  return { ...state, more };
}

/** @param {{project: string, tried: string, path: string, extent: string, fingerprint: string, file?: string}} props */
function Paths({ project, tried, path, extent, fingerprint, file }) {
  const { data, paths, error, more } = usePaths(path, extent, fingerprint);
  const [pair, setPair] = useState(/** @type {import("./pair.js").Pair | null} */ (null));
  const items = useMemo(() => paths.map((/** @type {any} */ row, /** @type {number} */ index) => (
    { key: row.id, row, level: 1, position: index + 1, among: paths.length, ids: [row.id] })), [paths]);
  const active = Math.max(0, items.findIndex((/** @type {any} */ item) => item.key === file));
  const open = (/** @type {number} */ index) => {
    const item = items[Math.max(0, Math.min(items.length - 1, index))];
    if (item) location.replace(toTry(project, tried, item.key));
  };
  const inList = () => !document.activeElement?.closest(".diff, table");
  const step = (/** @type {number} */ by) => (/** @type {KeyboardEvent} */ event) => (/^[jk]$/.test(event.key) || inList() ? open(active + by) : false);
  useKeys("review", items.length ? {
    next: step(1), previous: step(-1),
    "page-down": () => (inList() ? open(active + 15) : false), "page-up": () => (inList() ? open(active - 15) : false),
    first: () => (inList() ? open(0) : false), last: () => (inList() ? open(items.length - 1) : false),
  } : {});
  if (error && !data) return html`<p class="problem" role="alert">${error.message}</p>`;
  if (!data) return html`<p aria-busy="true" class="dim">…</p>`;
  if (!items.length) return null;
  const shown = items[active].row;
  return html`<div class="compared">
    <section class="side" aria-label="Paths" style=${{ height: items.length * HEIGHT + ROOM + "px" }}>
      <${Lines} label=${`Paths: ${EXTENTS[extent]}`} tree=${false} items=${items} active=${active} onActive=${open} onOpen=${() => {}} draw=${(/** @type {any} */ item) => html`<${Path} row=${item.row} candidates=${data.candidates} />`} />
      ${paths.length < data.total && html`<p class="row"><button type="button" onClick=${more}>More paths</button><span class="dim small">${paths.length.toLocaleString("en")} of ${data.total.toLocaleString("en")} are listed.</span></p>`}
      ${error && html`<p class="problem" role="alert">${error.message}</p>`}</section>
    <${Sides} key=${shown.id} project=${project} row=${shown} candidates=${data.candidates} wanted=${pair} want=${setPair} /></div>`;
}

/** @param {{row: any, candidates: any[]}} props */
function Path({ row, candidates }) {
  const results = row.groups.map((/** @type {any} */ group) => group.candidates.map((/** @type {number} */ place) => candidates[place].attempts[0]).join(" ")).join(" | ");
  return html`<span class="name clip" title=${row.path}>${spelled(row.path)}</span><span class="counts count" title="Attempts with the same result">${results}</span>`;
}

/** Two sides at a path. @param {{project: string, row: any, candidates: any[], wanted: import("./pair.js").Pair | null, want: (pair: import("./pair.js").Pair | null) => void}} props */
function Sides({ project, row, candidates, wanted, want }) {
  const pair = wanted && canShow(wanted, candidates) ? wanted : pairOf(row);
  const [left, right] = pair;
  const names = /** @type {[string, string]} */ (pair.map((place) => sideName(place, candidates)));
  const states = pair.map((place) => (place === BASE ? "base" : candidates[place].fork));
  const forks = pair.filter((place) => place !== BASE).map((place) => candidates[place]);
  return html`<section class="file" aria-label="One path, side by side">
    <div class="file-head"><h2 class="name">${spelled(row.path)}</h2></div>
    <ul class="results" aria-label="Results at this path">${row.groups.map((/** @type {any} */ group) => html`<li key=${group.candidates[0]}><${Result} group=${group} candidates=${candidates} /></li>`)}
      ${row.unchanged.length > 0 && html`<li class="dim">Not changed: ${attempts(row.unchanged, candidates)}</li>`}
      ${!row.compared && html`<li class="dim">Contents of equal size were not compared.</li>`}</ul>
    <div class="row pick">
      <${Side} label="Left" place=${left} candidates=${candidates} pick=${(/** @type {number} */ place) => want([place, right])} />
      <${Side} label="Right" place=${right} candidates=${candidates} pick=${(/** @type {number} */ place) => want([left, place])} />
      ${wanted && html`<button type="button" class="quiet" onClick=${() => want(null)}>Sides that differ</button>`}
      <span class="grow"></span>
      ${forks.map((one) => html`<a key=${one.fork} class="button" href=${toFork(project, one.fork, "review", row.id)}>Review attempt ${one.attempts[0]}</a>`)}</div>
    <div class="file-body">${alike(row, pair) ? html`<p class="empty">Both sides are the same here.</p>`
      : html`<${Diff} key=${states.join(" ")} project=${project} fork=${forks[forks.length - 1].fork} file=${row.id} old=${states[0]} new=${states[1]} names=${names} />`}</div></section>`;
}

/** @param {readonly number[]} places @param {any[]} candidates */
const attempts = (places, candidates) => "attempt" + (places.length > 1 ? "s " : " ") + listed(places.map((place) => candidates[place].attempts[0]));

/** @param {{group: import("./pair.js").Group, candidates: any[]}} props */
function Result({ group, candidates }) {
  return html`<span>${attempts(group.candidates, candidates)}: ${VERBS[group.change]}</span>
    ${group.added > 0 && html` <span class="plus">+${group.added.toLocaleString("en")}</span>`}${group.removed > 0 && html` <span class="minus">−${group.removed.toLocaleString("en")}</span>`}`;
}

/** @param {{label: string, place: number, candidates: any[], pick: (place: number) => void}} props */
function Side({ label, place, candidates, pick }) {
  return html`<label class="row"><span>${label}</span><select value=${String(place)} onChange=${(/** @type {any} */ event) => pick(Number(event.currentTarget.value))}>
    <option value=${String(BASE)}>The original</option>
    ${candidates.map((one, at) => one.compared && html`<option key=${at} value=${String(at)}>Attempt ${listed(one.attempts)}${one.best ? ", the best" : ""}</option>`)}</select></label>`;
}
