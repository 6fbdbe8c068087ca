// One hunk with its choice, and the unchanged lines between hunks.
import { wants } from "./choice.js";
import { blocksOf, Lines, whereabouts } from "./difftable.js";
import { html, useCallback, useEffect, useMemo, useRef, useState } from "./html.js";
import { useObserved } from "./observed.js";
import { NEW, OLD, open, shown } from "./rows.js";
import { drawn } from "./code.js";
import { text } from "./source.js";
import { number, plural } from "./wording.js";

const STEP = 20; // lines that are opened at once
const ALL = 5000; // with more lines there is no button for all

/** @typedef {import("./rows.js").Line} Line */
/** @typedef {import("./difftable.js").Manner} Manner */

/**
 * @param {{extent: "all" | "some" | "none", onToggle: (wanted: boolean) => void, label: string, children?: any}} props
 */
function Tick({ extent: now, onToggle, label, children }) {
  const box = useRef(/** @type {any} */ (null));
  useEffect(() => {
    box.current.indeterminate = now === "some";
  }, [now]);
  return html`<label class="tick"><input type="checkbox" ref=${box} checked=${now === "all"} aria-label=${label}
    onChange=${(/** @type {any} */ event) => onToggle(event.currentTarget.checked)} />${children}</label>`;
}

/**
 * One hunk; rendered again only if it has changed.
 * @param {{hunk: import("./rows.js").Hunk, at: number, total: number, manner: Manner, chosen: Set<number> | null,
 *   onPick?: (blocks: readonly number[], wanted: boolean) => void}} props
 */
export function Hunk({ hunk, at, total, manner, chosen, onPick }) {
  const blocks = useMemo(() => blocksOf(hunk.lines), [hunk]);
  const left = blocks.filter((block) => !wants(chosen, block)).join(",");
  return useMemo(() => html`<${Made} hunk=${hunk} blocks=${blocks} at=${at} total=${total} manner=${manner} left=${left} onPick=${onPick} />`,
    [hunk, blocks, at, total, manner, left, onPick]);
}

/**
 * @param {{hunk: import("./rows.js").Hunk, blocks: readonly number[], at: number, total: number, manner: Manner, left: string,
 *   onPick?: (blocks: readonly number[], wanted: boolean) => void}} props
 * `left`: the numbers of the blocks that are not chosen
 */
function Made({ hunk, blocks, at, total, manner, left, onPick }) {
  const off = useMemo(() => (left ? left.split(",").map(Number) : []), [left]);
  const now = off.length === 0 ? "all" : off.length < blocks.length ? "some" : "none";
  const [asked, setAsked] = useState(false);
  const [isOpen, setOpen] = useState(hunk.risk !== "dull");
  const reasons = hunk.reasons ?? [];
  const apart = onPick && blocks.length > 1 && (asked || now === "some");
  const pick = useCallback((/** @type {number} */ block) => {
    const label = `Apply change ${blocks.indexOf(block) + 1} of ${blocks.length} in this hunk`;
    const wanted = !off.includes(block);
    return html`<${Tick} extent=${wanted ? "all" : "none"} label=${label}
      onToggle=${(/** @type {boolean} */ yes) => onPick?.([block], yes)}>change ${blocks.indexOf(block) + 1} of ${blocks.length}${
      wanted ? "" : " – not chosen"}</${Tick}>`;
  }, [blocks, off, onPick]);
  const where = whereabouts(hunk);
  const observed = useObserved(manner.place, blocks);
  return html`<section class=${"hunk " + (now === "none" ? "off" : "")} tabindex="-1" data-hunk=${at}
    aria-label=${`Hunk ${at + 1} of ${total}: ${where}${now === "none" ? ", not chosen" : now === "some" ? ", partly chosen" : ""}${reasons.map((one) => ", " + one).join("")}`}>
    <div class="hunk-bar">
      ${onPick && html`<${Tick} extent=${now} label=${`Apply hunk ${at + 1} of ${total}: ${where}`}
        onToggle=${(/** @type {boolean} */ yes) => onPick(blocks, yes)} />`}
      <span>${where}${hunk.continued && ", continued"}</span>${hunk.section && html`<code class="section">${drawn(hunk.section)}</code>`}
      ${reasons.map((one) => html`<span key=${one} class=${"tag " + (hunk.risk === "dull" ? "" : "warn")}>${one}</span>`)}
      ${hunk.risk === "dull" && html`<button type="button" class="small" aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)}>${isOpen ? "fold" : "show"}</button>`}
      ${observed.button}
      ${onPick && now !== "all" && html`<strong class="left">${now === "none" ? "not chosen" : "partly chosen"}</strong>`}
      ${onPick && blocks.length > 1 && now !== "some" && html`<button type="button" class="small" aria-pressed=${asked ? "true" : "false"}
        onClick=${() => setAsked(!asked)}>${asked ? "choose as one" : `choose ${blocks.length} changes apart`}</button>`}
    </div>
    ${observed.below}
    ${isOpen && html`<${Lines} lines=${hunk.lines} manner=${manner} off=${off} pick=${apart ? pick : undefined} now=${at === 0} />`}
  </section>`;
}

/** Lines of the new side as they are in both. @param {readonly Line[]} lines @param {number} shift @returns {Line[]} */
const both = (lines, shift) => lines.map((line) => {
  const at = line[NEW] || line[OLD];
  return /** @type {Line} */ ([" ", at + shift, at, ...line.slice(3, 4), -1, [], ...line.slice(6)]);
});

/** @param {{gap: import("./rows.js").Gap, last: boolean, manner: Manner}} props `last`: the end of the file */
export function Fold({ gap, last, manner }) {
  const [opened, setOpened] = useState({ top: 0, bottom: 0 });
  const [lines, setLines] = useState(/** @type {{top: Line[], bottom: Line[]}} */ ({ top: [], bottom: [] }));
  const [problem, setProblem] = useState("");
  const left = gap.count - opened.top - opened.bottom;
  const more = async (/** @type {"top" | "bottom" | "all"} */ where) => {
    const next = open(gap, opened, where, STEP);
    const [[first, top], [, bottom]] = shown(gap, next);
    try {
      const wanted = where === "bottom"
        ? [gap.first + gap.count - bottom, bottom - opened.bottom]
        : [first + opened.top, top - opened.top];
      const found = both(await several(manner.place, wanted[0], wanted[1]), gap.shift);
      setLines(where === "bottom" ? { ...lines, bottom: [...found, ...lines.bottom] } : { ...lines, top: [...lines.top, ...found] });
      setOpened(next);
      setProblem("");
    } catch (error) {
      setProblem(/** @type {Error} */ (error).message);
    }
  };
  const button = (/** @type {"top" | "bottom" | "all"} */ where, /** @type {string} */ label, /** @type {string} */ shown_) =>
    html`<button type="button" class="small" aria-label=${label} title=${label} onClick=${() => more(where)}>${shown_}</button>`;
  const few = left <= STEP;
  return html`${lines.top.length > 0 && html`<${Lines} lines=${lines.top} manner=${manner} />`}
    ${left > 0 && html`<div class="fold">
      ${gap.at > 0 && !few && button("top", `Show ${STEP} lines more, from the top`, `↓ ${STEP}`)}
      ${!last && !few && button("bottom", `Show ${STEP} lines more, from the bottom`, `↑ ${STEP}`)}
      ${left <= ALL && button("all", `Show all ${number(left)} lines`, "all")}
      <span>⋯ ${plural(left, "line")} unchanged</span>${problem && html`<span class="problem" role="alert">${problem}</span>`}
    </div>`}
    ${lines.bottom.length > 0 && html`<${Lines} lines=${lines.bottom} manner=${manner} />`}`;
}

/** @param {import("./source.js").Place} place @param {number} first @param {number} count */
async function several(place, first, count) {
  /** @type {Line[]} */
  const found = [];
  while (found.length < count) {
    const { lines } = await text(place, "new", first + found.length, count - found.length);
    if (!lines.length) throw new Error("the file has changed: look at it again");
    found.push(...lines);
  }
  return found;
}
