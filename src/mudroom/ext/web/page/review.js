// The review of a fork: the files on the left, one of them on the right, and the bar below.
import { Level } from "./badge.js";
import { Bar } from "./bar.js";
import { atFork, get, query } from "./api.js";
import { Emptied } from "./applies.js";
import { forgetChoice, usePicked } from "./choosing.js";
import { spelled } from "./code.js";
import { Commits } from "./commits.js";
import { Company } from "./company.js";
import { Decided, Drift, useKnown } from "./decided.js";
import { Diff } from "./diff.js";
import { tellConflicts } from "./frame.js";
import { Failed, Waiting } from "./home.js";
import { html, useCallback, useEffect, useMemo, useRef, useState } from "./html.js";
import { useKeys } from "./keys.js";
import { Lines } from "./list.js";
import { useLoaded } from "./load.js";
import { blocksOf, counted as countOf, extentOf, modeOf, ticked, wantBlocks, wantMode } from "./picked.js";
import { byRisk, folded as foldedRisks, isMixed } from "./order.js";
import { counted } from "./plural.js";
import { Pushes, useSent } from "./pushes.js";
import { ofFile, Remarks, sentIn, useRemarks } from "./remarks.js";
import { toFork, toProject } from "./route.js";
import { kept, ofTab } from "./store.js";
import { inPart, saidOf } from "./telling.js";
import { firstOf, flat, grow, lines, offered, repositories, sifted } from "./tree.js";

const NARROW = "(max-width: 46rem)"; // as in review.css
const NAMED = 8; // files in a line
const OFTEN = 5000; // milliseconds between two checks of the project while the page is visible; also before a failed request is repeated
const MOST = 20_000; // rows in a request; the first answer has fewer
const CALM = 5_000; // rows that are filtered at each key
const PAUSE = 150; // milliseconds without a key
/** @type {Record<string, [string, string]>} */
const VERBS = { added: ["A", "added"], modified: ["M", "modified"], deleted: ["D", "deleted"], renamed: ["R", "renamed"] };
/** @type {Record<string, [string, string]>} */
const TAGS = {
  "executes-later": ["runs later", "bad"], protected: ["protected", "bad"], repository: ["repository", ""], "new-repository": ["new repository", ""], "work-tree": ["work tree", ""], submodule: ["submodule", ""], secret: ["secret", "warn"], "leads-outside": ["leads outside", "bad"], "reduced-mode": ["fewer permissions", "warn"], owner: ["other owner", "warn"], conflict: ["conflict", "bad"],
  ignored: ["ignored", ""], binary: ["binary", ""], large: ["large", ""], mode: ["mode", ""], type: ["type", "warn"], xattr: ["attributes", ""],
};

/** @param {{project: string, fork: string, file?: string, place: any, keep: (is: boolean) => void}} props `keep`: the view stays, even if the fork is gone */
export function Review({ project, fork, file, place, keep }) {
  const path = atFork(project, fork);
  const { data: fresh, error, reload } = useLoaded(path + "/changes", (what, which) => which === project && what === "forks");
  const [held, setHeld] = useState(/** @type {any} */ (null));
  const [working, setWorking] = useState(false);
  const [turn, setTurn] = useState(0);
  const take = useRef(true);
  useEffect(() => (keep(working), () => keep(false)), [working]);
  useEffect(() => {
    if (!fresh || (!take.current && held)) return;
    take.current = false;
    const more = held?.fingerprint === fresh.fingerprint && held.rows.length > fresh.rows.length; // they are loaded already
    setHeld(more ? { ...fresh, rows: held.rows } : fresh);
  }, [fresh]);
  useRest(path, held, setHeld);
  useEffect(() => void (error?.status === 404 && forgetChoice(project, fork)), [error]);
  if (error && !held) return html`<${Failed} error=${error} again=${() => reload(true)} />`;
  if (!held) return html`<${Waiting} label="Loading what has changed" />`;
  /** @param {boolean} [anew] what was chosen has been applied: nothing of the choice is left */
  const again = (anew = false) => {
    if (anew) setTurn(turn + 1);
    take.current = true;
    if (fresh && isOther(fresh, held)) {
      take.current = false;
      setHeld(fresh);
    } else {
      if (anew) setHeld(null); // the shown rows are stale
      reload(true); // the awaited answer may be equal
    }
  };
  const moved = !working && fresh && isOther(fresh, held) ? fresh : null;
  const row = place?.forks.find((/** @type {any} */ one) => one.name === fork);
  return html`<${Files} key=${`${turn} ${held.created}`} project=${project} fork=${fork} file=${file} row=${row} changes=${held} moved=${moved} again=${again} working=${working} setWorking=${setWorking} place=${place} />`;
}

/** Whether an answer has other changes, or other pushes. @param {any} fresh @param {any} held */
const isOther = (fresh, held) => fresh.fingerprint !== held.fingerprint || fresh.pushes.map(named).join() !== held.pushes.map(named).join();

/** @param {any} one */
const named = (one) => `${one.name} ${one.state}`;

/** The rows after the first answer, set all at once, because each list is rendered again. @param {string} path @param {any} held @param {(next: any) => void} setHeld */
function useRest(path, held, setHeld) {
  const next = held && held.rows.length < held.total ? held.rows.length : 0;
  const [tries, setTries] = useState(0);
  useEffect(() => {
    if (!next) return;
    const aborter = new AbortController();
    let timer = 0;
    rest(path, held, aborter.signal).then(({ rows, failed }) => {
      if (aborter.signal.aborted) return;
      if (rows.length) setHeld({ ...held, rows: [...held.rows, ...rows] });
      else if (failed) timer = window.setTimeout(() => setTries((count) => count + 1), OFTEN);
    });
    return () => (clearTimeout(timer), aborter.abort());
  }, [path, next, held?.fingerprint, tries]);
}

/**
 * As many rows as can be loaded: missing rows are shown as such, and an apply is bound to the fingerprint.
 * @param {string} path @param {any} held @param {AbortSignal} signal
 */
async function rest(path, held, signal) {
  /** @type {any[]} */
  const rows = [];
  let more = null;
  while (held.rows.length + rows.length < held.total) {
    more = await get(path + "/changes" + query({ first: held.rows.length + rows.length, count: MOST }), signal).catch(() => null);
    if (!more || more.fingerprint !== held.fingerprint || !more.rows.length) break;
    rows.push(...more.rows);
  }
  return { rows, failed: !more };
}

/** The typed filter, delayed until typing pauses: filtering very many rows takes longer than a key press. @param {string} text @param {number} count of rows */
function useTyped(text, count) {
  const [typed, setTyped] = useState(text);
  const waits = text !== "" && count > CALM;
  useEffect(() => {
    const timer = setTimeout(() => setTyped(text), waits ? PAUSE : 0);
    return () => clearTimeout(timer);
  }, [text, waits]);
  return waits ? typed : text;
}

/** How the fork relates to the project now. @param {string} path @param {any} changes */
function useStanding(path, changes) {
  const { data, reload } = useLoaded(path + "/standing" + query({ reviewed: changes.fingerprint }), (what) => what === "applies");
  useEffect(() => {
    const look = () => void (document.visibilityState === "visible" && reload());
    const timer = setInterval(look, OFTEN);
    addEventListener("focus", look);
    return () => (clearInterval(timer), removeEventListener("focus", look));
  }, [path]);
  const first = { drift: changes.drift, drifted: changes.drifted, conflicts: changes.conflicts };
  const now = data ? { ...data, conflicts: data.conflicts ?? (data.drift ? changes.conflicts : 0) } : first;
  const known = useKnown(path, now, changes);
  return known ? { ...now, known, conflicts: known.filter((one) => !one.decided).length } : { ...now, known };
}

/** The files that were marked as reviewed, as long as they have not changed. @param {string} name @param {any[]} rows */
function useLooked(name, rows) {
  const key = "looked." + name;
  const [marks, setMarks] = useState(() => new Set((ofTab.get(key) ?? "").split(" ").filter(Boolean)));
  const of = (/** @type {any} */ row) => row.id + ":" + row.stamp;
  const looked = useMemo(() => new Set(rows.filter((row) => marks.has(of(row))).map((row) => row.id)), [rows, marks]);
  const mark = (/** @type {any} */ row, /** @type {boolean} */ is) => setMarks((before) => {
    const next = new Set(before);
    if (is) next.add(of(row));
    else next.delete(of(row));
    ofTab.set(key, [...next].join(" "));
    return next;
  });
  return { looked, mark };
}

/** @param {any} props */
function Files({ project, fork, file, row, changes, moved, again, working, setWorking, place }) {
  const path = atFork(project, fork);
  const rows = changes.rows;
  const { picked, setPicked, forget, others, lost } = usePicked(project, fork, changes);
  const standing = useStanding(path, changes);
  useEffect(() => void (typeof standing.conflicts === "number" && tellConflicts(project, fork, standing.conflicts)), [standing.conflicts]);
  const decided = useMemo(() => new Map((standing.known ?? []).map((/** @type {any} */ one) => [one.id, saidOf(one)])), [standing.known]);
  const { looked, mark } = useLooked(`${project}.${fork}`, rows);

  const [sent, left, flip] = useSent(changes.pushes);
  const [text, setText] = useState("");
  const [filters, setFilters] = useState(/** @type {ReadonlySet<string>} */ (new Set()));
  const [mode, setMode] = useState(kept.get("list") ?? "risk");
  const [turned, setTurned] = useState(/** @type {ReadonlySet<string>} */ (new Set())); // directories that are not as at first
  const typed = useTyped(text, rows.length);
  const remarks = useRemarks(project, fork);
  const isNew = useCallback((/** @type {any} */ row) => !remarks.since || remarks.data?.new.includes(row.id), [remarks]);
  const listed = useMemo(() => sifted(rows, typed, filters).filter(isNew), [rows, typed, filters, isNew]);
  const grown = useMemo(() => grow(listed, changes.roots), [listed]);
  const remarked = useMemo(() => sentIn(remarks), [remarks]);
  const isRisk = mode === "risk" && isMixed(listed, remarked);
  const isTree = mode !== "flat";
  const folded = useMemo(() => (isRisk ? foldedRisks(listed) : repositories(grown)), [grown, isRisk]);
  const closed = useMemo(() => new Set([...folded, ...turned].filter((one) => folded.has(one) !== turned.has(one))), [folded, turned]);
  const items = useMemo(() => (isRisk ? byRisk(listed, closed, remarked) : isTree ? lines(grown, closed) : flat(listed)), [grown, isRisk, isTree, closed, remarked]);
  const first = useMemo(() => (isRisk && items.find((item) => item.row)?.row?.id) || firstOf(items), [items]);
  const current = file && (rows.length < changes.total || rows.some((/** @type {any} */ one) => one.id === file)) ? file : first;
  const [folder, setFolder] = useState(""); // the directory at the cursor; empty: a file
  const active = items.findIndex((item) => (folder ? item.key === folder && !item.row : item.row?.id === current));
  const open = (/** @type {string} */ id) => {
    setFolder("");
    if (id === file) return;
    const to = toFork(project, fork, "review", id);
    if (!file && matchMedia(NARROW).matches) location.hash = to; // where the file covers the list, "back" leads to the list
    else location.replace(to);
  };
  const at = (/** @type {number} */ index) => {
    const item = items[Math.max(0, Math.min(items.length - 1, index))];
    if (!item) return;
    if (item.row) open(item.row.id);
    else setFolder(item.key);
  };
  const fold = (/** @type {string} */ key) => setTurned((now) => {
    const next = new Set(now);
    if (!next.delete(key)) next.add(key);
    return next;
  });
  const guarded = useMemo(() => new Set(rows.filter((/** @type {any} */ one) => one.flags.includes("protected")).map((/** @type {any} */ one) => one.id)), [rows]);
  const toggle = (/** @type {string[]} */ ids) => setPicked((now) => ticked(now, ids, guarded));
  const toMode = (/** @type {string} */ next) => (kept.set("list", next), setMode(next));
  const toNext = () => toMode({ risk: "tree", tree: "flat" }[mode] ?? "risk");
  const search = useRef(/** @type {HTMLInputElement | null} */ (null));
  const bar = useRef({ apply: () => {} });
  const nearest = (/** @type {number} */ from, /** @type {1 | -1} */ step, /** @type {(id: string) => boolean} */ fits) => {
    for (let index = from + step; index >= 0 && index < items.length; index += step) {
      const one = items[index].row;
      if (one && fits(one.id)) return one.id;
    }
    return null;
  };
  const inList = () => !document.activeElement?.closest(".diff");
  const item = items[active];
  useKeys("review", {
    next: (event) => (event.key === "j" || inList() ? at(active + 1) : false),
    previous: (event) => (event.key === "k" || inList() ? at(active - 1) : false),
    "page-down": () => (inList() ? at(active + 15) : false),
    "page-up": () => (inList() ? at(active - 15) : false),
    first: () => (inList() ? at(0) : false),
    last: () => (inList() ? at(items.length - 1) : false),
    fold: (event) => {
      if (!isTree || !item || (event.key !== "h" && !inList())) return false;
      if (!item.row && item.open) return fold(item.key);
      const above = items.slice(0, active).findLast((one) => !one.row && one.level < item.level);
      if (above) setFolder(above.key);
    },
    unfold: (event) => {
      if (!item || item.row || (event.key !== "l" && !inList())) return false;
      if (!item.open) fold(item.key);
      else at(active + 1);
    },
    choose: (event) => (item && (event.key === "x" || inList()) ? toggle(item.ids) : false),
    looked: () => {
      if (!item?.row || !inList()) return false;
      mark(item.row, !looked.has(item.row.id));
      if (!looked.has(item.row.id)) at(active + 1);
    },
    unlooked: () => {
      const to = nearest(active, 1, (id) => !looked.has(id)) ?? nearest(-1, 1, (id) => !looked.has(id));
      if (to) open(to);
    },
    filter: () => search.current?.focus(),
    mode: toNext,
    all: () => toggle(listed.map((one) => one.id)),
    apply: () => void bar.current.apply(),
    back: () => (file ? void (location.hash = toFork(project, fork)) : false),
  });

  const parts = inPart(rows, picked);
  const shown = rows.find((/** @type {any} */ one) => one.id === current);
  const written = useMemo(() => ofFile(remarks, shown), [remarks, shown]);
  const choose = useCallback((/** @type {Set<number> | null} */ blocks) => setPicked((now) => (shown ? wantBlocks(now, shown, blocks) : now)), [shown]);
  return html`<main class=${"review" + (file || changes.total === 0 ? " with-file" : "")} tabindex="-1">
    <h1 class="hidden">Review of ${fork}</h1>
    <div class="notices"><${Notices} project=${project} fork=${fork} changes=${changes} moved=${moved} standing=${standing} again=${() => again()} others=${others} lost=${lost} /><${Pushes} project=${project} fork=${fork} pushes=${changes.pushes} left=${left} flip=${flip} dropped=${() => again()} working=${working} /><${Commits} project=${project} fork=${fork} changes=${changes} /><${Remarks} project=${project} fork=${fork} remarks=${remarks} rows=${rows} shown=${shown} working=${working} /></div>
    <section class="side" aria-label="Changed files">
      <div class="side-head">
        <div class="row"><${Progress} row=${row} changes=${changes} looked=${looked.size} /></div>
        <div class="row"><input ref=${search} type="search" class="grow" aria-label="Filter files" placeholder="Filter files (/)" value=${text} onInput=${(/** @type {any} */ event) => setText(event.currentTarget.value)}
            onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === "Escape" && (setText(""), search.current?.blur())} />
          <button type="button" class="quiet" aria-pressed=${String(mode === "risk")} title="What runs later and weakened tests first" onClick=${() => toMode(mode === "risk" ? "tree" : "risk")}>Risk</button>
          <button type="button" class="quiet" aria-pressed=${String(mode === "tree")} onClick=${() => toMode(mode === "tree" ? "flat" : "tree")}>Tree</button></div>
        <${Filters} rows=${rows} filters=${filters} setFilters=${setFilters} />
        <label class="check every"><${Box} extent=${extentOf(picked, listed.map((one) => one.id))} label=${listed.length === rows.length ? "Apply all files" : "Apply all listed files"} onChange=${() => toggle(listed.map((one) => one.id))} tabs />
          <span class="count">${countOf(rows, picked).toLocaleString("en")} of ${changes.total.toLocaleString("en")} chosen${parts > 0 && `, ${parts.toLocaleString("en")} of them in part`}${listed.length < rows.length ? `, ${listed.length.toLocaleString("en")} listed` : ""}</span></label>
      </div>
      ${items.length === 0 && rows.length > 0 && html`<p class="empty">No file matches.</p>`}
      <${Lines} label="Changed files" tree=${isTree} items=${items} active=${active} onActive=${at} onOpen=${(/** @type {any} */ one) => fold(one.key)}
        checked=${(/** @type {any} */ one) => /** @type {const} */ ({ all: "true", none: "false", some: "mixed" })[extentOf(picked, one.ids)]}
        draw=${(/** @type {any} */ one) => html`<${Line} item=${one} tree=${isTree} extent=${extentOf(picked, one.ids)} looked=${one.row ? looked.has(one.row.id) : false} decided=${decided.get(one.row?.id)} toggle=${toggle} />`} />
    </section>
    <section class="file" aria-label="File">
      ${shown ? html`<div class="file-head">
          <a class="button quiet back" href=${toFork(project, fork)}><span aria-hidden="true">‹ </span>Files</a>
          <h2 class="name grow" title=${shown.path}>${shown.source && html`<span class="dim">${spelled(shown.source)} → </span>`}${spelled(shown.path)}</h2>
          <${Tags} row=${shown} decided=${decided.get(shown.id)} />
          <label class="check"><${Box} extent=${extentOf(picked, [shown.id])} label=${"Apply " + shown.path} onChange=${() => toggle([shown.id])} tabs /><span aria-hidden="true">Apply</span></label>
          ${shown.mode && shown.hunks && html`<label class="check"><input type="checkbox" checked=${modeOf(picked, shown.id)} disabled=${Boolean(decided.get(shown.id))} aria-label=${`Apply permissions ${shown.mode.join(" → ")} of ${shown.path}`} onChange=${() => setPicked((now) => wantMode(now, shown, !modeOf(now, shown.id)))} /><span aria-hidden="true">Permissions <span class="count">${shown.mode.join(" → ")}</span></span></label>`}
          <label class="check"><input type="checkbox" checked=${looked.has(shown.id)} aria-label=${"Looked at " + shown.path} onChange=${() => mark(shown, !looked.has(shown.id))} /><span aria-hidden="true">Looked at</span></label>
        </div>
        <div class="file-body"><${Company} row=${shown} rows=${rows} />${decided.get(shown.id) && html`<${Decided} said=${decided.get(shown.id)} isPart=${Boolean(picked.get(shown.id))} to=${toFork(project, fork, "conflicts")} />`}<${Diff} key=${shown.id + changes.fingerprint + remarks.since} project=${project} fork=${fork} file=${shown.id} old=${remarks.since || undefined} new=${remarks.since ? fork : undefined} remarks=${written} stamp=${changes.in_use || remarks.since ? undefined : shown.stamp} chosen=${blocksOf(picked, shown.id)} picked=${picked} still=${working}
          onChoose=${shown.hunks && !remarks.since && !decided.get(shown.id) ? choose : undefined} /></div>` : changes.total === 0 && html`<${Emptied} project=${project} fork=${fork} applies=${place?.applies ?? []} />`}
    </section>
    <${Bar} project=${project} fork=${row} name=${fork} changes=${changes} picked=${picked} sent=${sent} standing=${standing} isRepository=${Boolean(place?.repository)} reload=${again} started=${setWorking} applied=${forget} keys=${bar.current} />
  </main>`;
}

/** @param {any} props */
function Notices({ project, fork, changes, moved, standing, again, others, lost }) {
  const more = moved ? moved.total - changes.total : 0;
  return html`<div role="status">
    ${moved && html`<p class="banner warn"><span>This fork has changed since you looked${more > 0 ? `: ${counted(more, "more file")}` : more < 0 ? `: ${counted(-more, "file")} fewer` : ""}.</span><span class="grow"></span><button type="button" onClick=${again}>Reload</button></p>`}
    ${lost && html`<p class="banner warn">Nothing is chosen: your choices here were too large to be kept.</p>`}
    ${others.length > 0 && html`<p class="banner warn"><span>${counted(others.length, "file that you had chosen has changed since, and is", "files that you had chosen have changed since, and are")} not chosen any more: <span class="name">${others.slice(0, NAMED).map((/** @type {any} */ one, /** @type {number} */ at) => [at ? ", " : "", spelled(one.path)])}</span>${others.length > NAMED ? ` and ${others.length - NAMED} more` : ""}</span></p>`}
    ${changes.in_use && html`<p class="banner" role="status"><span class="name">${fork}</span> ${changes.in_use}: this is a look, not a review. It can be applied when that has ended.${changes.running && html` <a href=${toFork(project, fork, "watch")}>Watch</a>`}</p>`}
    ${standing.drift > 0 && html`<${Drift} standing=${standing} to=${toFork(project, fork, "conflicts")} />`}
    ${changes.settings.length > 0 && html`<details class="banner warn" open><summary>Your agent's settings have changed in this fork. They run later, and land only by <code>mudroom agent settings ${fork}</code></summary><ul>${changes.settings.map((/** @type {string} */ line) => html`<li class="name" key=${line}>${line}</li>`)}</ul></details>`}
    ${changes.credentials.length > 0 && html`<p class="banner bad">Its commands could use your credentials: <span class="name">${changes.credentials.join(", ")}</span></p>`}
    ${changes.remarks.length > 0 && html`<details class="banner"><summary>${counted(changes.remarks.length, "remark")}</summary><ul>${changes.remarks.slice(0, 200).map((/** @type {any} */ one) => html`<li class="name" key=${one.id + one.text}>${spelled(one.path)} ${one.text}</li>`)}</ul></details>`}
  </div>`;
}

/** @param {{row: any, changes: any, looked: number}} props */
function Progress({ row, changes, looked }) {
  const { lines_added: added, lines_removed: removed } = changes.summary;
  return html`${row && html`<${Level} badge=${row.badge} />`}
    ${added + removed > 0 && html`<span class="plus">+${added.toLocaleString("en")}</span><span class="minus">−${removed.toLocaleString("en")}</span>`}
    <span class="count">${looked.toLocaleString("en")} of ${changes.total.toLocaleString("en")} looked at</span>
    ${changes.rows.length < changes.total && html`<span class="count" role="status">${changes.rows.length.toLocaleString("en")} loaded</span>`}`;
}

/** Whether the page is as narrow as a phone. */
function usePhone() {
  const [is, setIs] = useState(matchMedia(NARROW).matches);
  useEffect(() => {
    const width = matchMedia(NARROW);
    const told = () => setIs(width.matches);
    width.addEventListener("change", told);
    return () => width.removeEventListener("change", told);
  }, []);
  return is;
}

/** @param {any} props */
function Filters({ rows, filters, setFilters }) {
  const all = useMemo(() => offered(rows), [rows]);
  const narrow = usePhone();
  if (!all.length) return null;
  const flip = (/** @type {string} */ name) => {
    const next = new Set(filters);
    if (!next.delete(name)) next.add(name);
    setFilters(next);
  };
  const chips = html`<div class="row filters" role="group" aria-label="Only files that">${all.map(([name, label, count]) => html`
    <button type="button" key=${name} class="chip" aria-pressed=${String(filters.has(name))} onClick=${() => flip(name)}>${label} <span class="count">${count.toLocaleString("en")}</span></button>`)}</div>`;
  return narrow ? html`<details open=${filters.size > 0}><summary>Only some files</summary>${chips}</details>` : chips;
}

/** A box with three states. @param {{extent: string, label: string, onChange: () => void, tabs?: boolean}} props */
function Box({ extent, label, onChange, tabs = false }) {
  const element = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => {
    if (element.current) element.current.indeterminate = extent === "some";
  }, [extent]);
  return html`<input ref=${element} type="checkbox" tabindex=${tabs ? undefined : "-1"} aria-label=${label} checked=${extent === "all"} onChange=${onChange}
    onClick=${(/** @type {Event} */ event) => event.stopPropagation()} />`;
}

/** @param {{row: any, most?: number, decided?: string}} props `decided`: what is, about a conflict */
function Tags({ row, most = 9, decided = "" }) {
  return html`${decided && html`<span class="tag" title=${decided}>decided</span>`}${row.flags.filter((/** @type {string} */ flag) => TAGS[flag]).slice(0, most).map((/** @type {string} */ flag) => html`<span key=${flag} class=${"tag " + TAGS[flag][1]} title=${flag === "executes-later" && row.runs ? row.runs : null}>${TAGS[flag][0]}</span>`)}`;
}

/** @param {{item: import("./tree.js").Item, tree: boolean, extent: string, looked: boolean, decided?: string, toggle: (ids: string[]) => void}} props */
function Line({ item, tree, extent, looked, decided, toggle }) {
  const { row } = item;
  const label = "Apply " + (row ? row.path : item.isRoot ? item.name : item.key);
  const counts = html`<span class="counts">${item.added > 0 && html`<span class="plus">+${item.added}</span>`} ${item.removed > 0 && html`<span class="minus">−${item.removed}</span>`}</span>`;
  const box = html`<${Box} extent=${extent} label=${label} onChange=${() => toggle(item.ids)} />`;
  if (item.heading) return html`<span class="fold" aria-hidden="true">${item.open ? "▾" : "▸"}</span><${Box} extent=${extent} label=${`Apply all of: ${item.name}`} onChange=${() => toggle(item.ids)} /><strong class="clip grow">${item.name}</strong><span class="count">${item.ids.length}</span>${counts}`;
  if (!row) return html`<span class="fold" aria-hidden="true">${item.open ? "▾" : "▸"}</span>${box}<span class=${"name clip grow" + (item.isRoot ? " root" : "")} title=${item.key}>${spelled(item.name)}${item.isRoot ? "" : "/"}</span><span class="count">${item.ids.length}</span>${counts}`;
  const [letter, verb] = VERBS[row.change];
  return html`${tree && html`<span class="fold"></span>`}${box}<span class=${"verb " + row.change} title=${verb}><span aria-hidden="true">${letter}</span><span class="hidden">${verb}</span></span>
    <span class=${"name clip grow" + (looked ? " dim" : "")} title=${row.path}>${spelled(item.name)}</span>${looked && html`<span class="dim" title="looked at"><span aria-hidden="true">✓</span><span class="hidden">looked at</span></span>`}
    <${Tags} row=${row} most=${2} decided=${decided} />${counts}`;
}
