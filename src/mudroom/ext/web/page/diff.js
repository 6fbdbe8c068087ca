// The differences of one file.
import { atFork, get } from "./api.js";
import { choose, extent } from "./choice.js";
import { drawn } from "./code.js";
import { useColours } from "./colour.js";
import { blocksOf } from "./difftable.js";
import { html, useCallback, useEffect, useMemo, useRef, useState } from "./html.js";
import { Fold, Hunk } from "./hunk.js";
import { useKeys } from "./keys.js";
import { useLayout, useNarrow } from "./layout.js";
import { useLoaded } from "./load.js";
import { Moved } from "./moved.js";
import { useNear } from "./near.js";
import { Images } from "./picture.js";
import { useObservedKey } from "./observed.js";
import { Parts } from "./parts.js";
import { Plain } from "./plain.js";
import { isRemarked, lined, useRemarkKey } from "./remarkline.js";
import { gaps, returns } from "./rows.js";
import { Both, Links, remarks } from "./sides.js";
import { difference } from "./source.js";

/**
 * @param {{project: string, fork: string, file: string, old?: string, new?: string, stamp?: string, chosen?: Set<number> | null, remarks?: import("./remarks.js").FileRemarks | null,
 *   names?: [string, string], picked?: ReadonlyMap<string, unknown>, still?: boolean, onChoose?: (blocks: Set<number> | null) => void}} props
 * `still`: do not reload: the fork is being applied, and may be gone afterwards. `old`, `new`: other states than what the fork was made from and what it is ("base", "now", FORK, FORK@CHECKPOINT).
 * `stamp`: of the row, if the list is of a review: the difference of another change is not shown. `names`: of those states, for a comparison of two candidates. `picked`: the chosen rows, for the line about a move. `chosen`: the chosen blocks; null or none: all. `onChoose` is called with the new choice (null: all);
 * without it nothing can be chosen.
 */
export function Diff({ project, fork, file, old, new: now, stamp, names, chosen = null, picked, still = false, remarks: written = null, onChoose }) {
  const [asNew, setAsNew] = useState(false);
  const place = useMemo(() => ({ project, fork, file, old, new: now, asNew, stamp }), [project, fork, file, old, now, asNew, stamp]);
  const { data, error, reload } = useLoaded(difference(place), (what, where) => !still && what === "forks" && where === project);
  const steady = useSteady(data);
  const known = useRef(/** @type {any} */ (null)); // the line about a move stays while its other view is loading
  if (data) known.current = data.moved ? data : null;
  const from = data?.moved?.compared ? data.moved.id : undefined;
  const sides = useMemo(() => ({ ...place, from }), [place, from]);
  const move = known.current && html`<${Moved} project=${project} fork=${fork} file=${file} other=${known.current.moved} isNew=${known.current.new.exists} asNew=${asNew} show=${setAsNew} picked=${picked} />`;
  if (error && !data) return html`${move}<p class="problem" role="alert">${error.message}${error.hint && html`<br />${error.hint}`}</p>`;
  if (!data) return html`${move}<p aria-busy="true" class="dim">…</p>`;
  return html`${move}${error && !still && html`<p class="problem" role="alert">${error.message}</p>`}<${Shown} key=${file + " " + steady.stamp} place=${sides} data=${steady.data} names=${names} chosen=${chosen} written=${written}
    onChoose=${data.divisible ? onChoose : undefined} reload=${reload} />`;
}

/** The same object as long as its content is the same; `stamp`: number of changes. @param {any} data */
function useSteady(data) {
  const kept = useRef(/** @type {{data: any, text: string, stamp: number}} */ ({ data: undefined, text: "", stamp: 0 }));
  const text = useMemo(() => JSON.stringify(data) ?? "", [data]);
  if (kept.current.text !== text) kept.current = { data, text, stamp: kept.current.stamp + 1 };
  return kept.current;
}

/**
 * @param {{place: import("./source.js").Place, data: any, names?: [string, string], chosen: Set<number> | null, written: import("./remarks.js").FileRemarks | null,
 *   onChoose?: (blocks: Set<number> | null) => void, reload: () => void}} props
 */
function Shown({ place, data, names, chosen, written, onChoose, reload }) {
  const [pages, setPages] = useState([data]);
  const hunks = useMemo(() => pages.flatMap((page) => page.hunks), [pages]);
  const following = pages[pages.length - 1].following ?? null;
  const { split, setSplit } = useLayout();
  const [byParts, setByParts] = useState(() => Boolean(data.parts_first) && !isRemarked(data.hunks, written));
  const writes = Boolean(written?.draft);
  useEffect(() => {
    if (writes) setByParts(false); // a remark is written at a line
  }, [writes]);
  const [root, narrow] = useNarrow();
  const colours = useColours(place, data);
  const marked = useMemo(() => returns(hunks), [hunks]);
  const manner = useMemo(() => ({ place, split: split && !narrow, returns: marked === "some", colours, remarks: lined(written) }),
    [place, split, narrow, marked, colours, written]);
  const latest = useRef({ chosen, onChoose });
  latest.current = { chosen, onChoose };
  const pick = useCallback((/** @type {readonly number[]} */ blocks, /** @type {boolean} */ wanted) =>
    latest.current.onChoose?.(choose(latest.current.chosen, blocks, wanted, data.blocks)), [data]);
  useHunkKeys(root, hunks, chosen, onChoose && pick, () => setSplit(!split), () => (data.parts ? setByParts(!byParts) : false));
  useRemarkKey(root, hunks, written);
  useObservedKey(root);
  const text = hunks.length > 0 && !(data.parts && byParts);
  return html`<div class="diff" ref=${root}>
    <div class="diff-bar">
      <div class="said">${remarks(data, names).map((one) => html`<p key=${one}>${one}</p>`)}
        ${marked === "all" && html`<p class="dim">Lines end with CR LF.</p>`}</div>
      ${data.parts && html`<div class="segments" role="group" aria-label="What is shown of the file">
        <button type="button" aria-pressed=${byParts ? "true" : "false"} onClick=${() => setByParts(true)}>${data.parts[0].toUpperCase() + data.parts.slice(1)}</button>
        <button type="button" aria-pressed=${byParts ? "false" : "true"} onClick=${() => setByParts(false)}>${hunks.length ? "Text" : "File"}</button>
      </div>`}
      ${text && html`<div class="segments" role="group" aria-label="How the difference is shown">
        <button type="button" aria-pressed=${split ? "false" : "true"} onClick=${() => setSplit(false)}>Unified</button>
        <button type="button" aria-pressed=${split ? "true" : "false"} disabled=${narrow} title=${narrow ? "there is no room for it" : undefined}
          onClick=${() => setSplit(true)}>Side by side</button>
      </div>`}
    </div>
    ${data.parts && byParts ? html`<${Parts} place=${place} parts=${data.parts}>${lines()}<//>` : lines()}
  </div>`;

  function lines() {
    return html`${(data.old.image || data.new.image) && html`<${Images} place=${place} data=${data} />`}
    ${(data.old.target || data.new.target) && html`<${Links} data=${data} />`}
    ${["binary", "large", "masked", "unknown"].includes(data.kind) && html`<${Both} data=${data} names=${names} />`}
    ${["large", "unknown"].includes(data.kind) && html`<${Plain} manner=${manner} data=${data} />`}
    <${Hunks} place=${place} data=${data} hunks=${hunks} following=${following} manner=${manner} chosen=${chosen} onPick=${onChoose && pick} />
    ${following !== null && html`<${More} key=${following} place=${place} first=${following} total=${data.total} version=${data.version} reload=${reload} onPage=${(/** @type {any} */ page) => setPages([...pages, page])} />`}`;
  }
}

/** @param {any} props */
function Hunks({ data, hunks, following, manner, chosen, onPick }) {
  const folded = useMemo(() => gaps(hunks, following === null ? data.new.lines : null), [hunks, following, data]);
  const fold = (/** @type {number} */ at) => folded.has(at) &&
    html`<${Fold} key=${"fold" + at} gap=${folded.get(at)} last=${at === hunks.length} manner=${manner} />`;
  return html`${hunks.map((/** @type {any} */ hunk, /** @type {number} */ at) => [fold(at),
    html`<${Hunk} key=${"hunk" + at} hunk=${hunk} at=${at} total=${Math.max(data.total, hunks.length)} manner=${manner} chosen=${chosen} onPick=${onPick} />`])}
    ${fold(hunks.length)}`;
}

/** @param {{place: import("./source.js").Place, first: number, total: number, version: string, reload: () => void,
 *   onPage: (page: any) => void}} props */
function More({ place, first, total, version, reload, onPage }) {
  const [problem, setProblem] = useState("");
  const asking = useRef(-1);
  const ask = () => {
    if (asking.current === first) return;
    asking.current = first;
    setProblem("");
    get(difference(place, first, version)).then(onPage, (error) => {
      if (error.code === "moved") return reload();
      asking.current = -1;
      setProblem(error.message);
    });
  };
  const near = useNear(ask, true);
  return html`<p class="fold" ref=${near}><button type="button" class="small" onClick=${ask}>More of this file</button>
    <span>${first} of ${total} hunks shown</span>${problem && html`<span class="problem" role="alert">${problem}</span>`}</p>`;
}

/**
 * Keys of the hunks.
 * @param {{current: any}} root @param {import("./rows.js").Hunk[]} hunks @param {Set<number> | null} chosen
 * @param {((blocks: readonly number[], wanted: boolean) => void) | undefined} pick @param {() => void} layout @param {() => false | void} parts
 */
function useHunkKeys(root, hunks, chosen, pick, layout, parts) {
  const sections = () => /** @type {HTMLElement[]} */ ([...root.current.querySelectorAll("section[data-hunk]")]);
  const at = () => sections().findIndex((one) => one.contains(document.activeElement));
  useKeys("diff", {
    "next-hunk": () => show(sections()[Math.min(at() + 1, sections().length - 1)]),
    "previous-hunk": () => show(sections()[Math.max(at() - 1, 0)]),
    "choose-hunk": () => {
      const hunk = hunks[at()];
      if (!hunk || !pick) return false;
      const blocks = blocksOf(hunk.lines);
      pick(blocks, extent(chosen, blocks) !== "all");
    },
    layout,
    parts,
  });
}

/** Focus an element, and scroll to its beginning. @param {HTMLElement | undefined} target */
export function show(target) {
  if (!target) return false;
  target.focus({ preventScroll: true });
  target.scrollIntoView({ block: target.offsetHeight < innerHeight / 2 ? "nearest" : "start" });
}
