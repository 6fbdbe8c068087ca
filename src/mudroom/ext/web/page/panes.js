// Three sides of a file beside each other: the project's, the original, the fork's. Each region is one group of rows.
import { code } from "./code.js";
import { Fragment, html, useState } from "./html.js";
import { linesOf, numberOf, places, TAKES, unseen, written } from "./merge.js";
import { STEP } from "./opened.js";
import { SIDE_WORDS } from "./tables.js";
import { number, plural } from "./wording.js";

const MOST = 300; // rows of one region that are shown at once
const ALL = 2000; // with more lines there is no button for all: the server sends no more

/** @typedef {import("./merge.js").Placed} Placed */
/** @typedef {import("./merge.js").Decision} Decision */
/** @typedef {import("./rows.js").Line} Line */

/** @typedef {"ours" | "base" | "theirs"} SideName */
/** @type {readonly SideName[]} */
export const SIDES = ["ours", "base", "theirs"];
const capital = (/** @type {string} */ word) => word[0].toUpperCase() + word.slice(1);
/** @type {Record<string, string>} */
export const SIDE_NAMES = Object.fromEntries(Object.entries(SIDE_WORDS).map(([side, words]) => [side, capital(words)]));
/** Words of the buttons. @type {Record<string, string>} */
const TAKE_NAMES = Object.fromEntries(Object.entries(SIDE_WORDS).map(([side, words]) => [side, capital(words.replace("the ", ""))]));
const SAID = { same: "", conflict: "", ours: "Changed in the project: taken", theirs: "Changed in the fork: taken", both: "Changed in both in the same way: taken" };

/**
 * @param {{regions: readonly Placed[], decisions: import("./merge.js").Decisions, sides: readonly SideName[],
 *   settled: boolean, off: boolean, decide: (key: string, decision: Decision | null) => void,
 *   open: import("./opened.js").Open}} props
 * `sides`: the shown sides. `settled`: all places are decided and unchanged. `off`: choices are disabled.
 * `open`: more of the fold in a region is wanted
 */
export function Panes({ regions, decisions, sides, settled, off, decide, open }) {
  const total = places(regions).length;
  return html`<table class="lines panes" aria-label="The three sides">
    <colgroup>${sides.map(() => html`<col class="n" /><col />`)}</colgroup>
    <thead><tr>${sides.map((side) => html`<th scope="col" colspan="2">${SIDE_NAMES[side]}</th>`)}</tr></thead>
    ${regions.map((region, at) => region.kind === "conflict"
      ? html`<${Place} key=${region.key} region=${region} sides=${sides} total=${total} settled=${settled} off=${off} decision=${decisions.get(region.key) ?? null}
          decide=${(/** @type {Decision | null} */ next) => decide(region.key, next)} />`
      : html`<tbody key=${at} class=${"quiet " + region.kind}>${SAID[region.kind] && html`<tr class="pick"><td colspan=${2 * sides.length}>${SAID[region.kind]}</td></tr>`}
          <${Rows} region=${region} sides=${sides} open=${(/** @type {"top" | "bottom" | "all"} */ where) => open(at, where)} /></tbody>`)}
  </table>`;
}

/** @param {Placed} region @param {readonly SideName[]} sides @param {number} at */
const row = (region, sides, at) => html`<tr key=${at}>${sides.map((side) => {
  const line = region[side][at];
  if (!line) return html`<td class=${`number void ${side}`}></td><td class=${`code void ${side}`}></td>`;
  const name = `${side} ${side !== "base" && ["conflict", "both", side].includes(region.kind) ? "added" : ""}`;
  return html`<td class=${"number " + name}>${numberOf(line)}</td><td class=${"code " + name}>${code(line, false)}${line[7] ? html`<span class="note">… ${plural(line[7], "byte")} more</span>` : null}</td>`;
})}</tr>`;

/** All rows of a region, with its folds. @param {{region: Placed, sides: readonly SideName[], open?: (where: "top" | "bottom" | "all") => void}} props */
function Rows({ region, sides, open }) {
  const [all, setAll] = useState(false);
  const columns = 2 * sides.length;
  const count = Math.max(...sides.map((side) => region[side].length));
  const shown = all ? count : Math.min(count, MOST);
  const rows = (/** @type {number} */ first, /** @type {number} */ last) => Array.from({ length: Math.max(0, last - first) }, (_, at) => row(region, sides, first + at));
  const more = Math.max(region.more.base, region.more.ours, region.more.theirs);
  return html`<${Fragment}>${region.hidden > 0
    ? [rows(0, region.fold), html`<${Fold} key="left" columns=${columns} region=${region} open=${open} />`, rows(region.fold, count)]
    : rows(0, shown)}
    ${region.hidden === 0 && shown < count && html`<tr class="pick"><td colspan=${columns}><button type="button" class="small" onClick=${() => setAll(true)}>${plural(count - shown, "line")} more</button></td></tr>`}
    ${more > 0 && html`<${Left} columns=${columns} count=${more} what="too many to be shown" />`}</${Fragment}>`;
}

/** Unchanged lines that are not here yet. @param {{columns: number, region: Placed, open?: (where: "top" | "bottom" | "all") => void}} props */
function Fold({ columns, region: { hidden, fold, ours }, open }) {
  const button = (/** @type {"top" | "bottom" | "all"} */ where, /** @type {string} */ label, /** @type {string} */ shown) => html`<button type="button" class="small"
    aria-label=${label} title=${label} onClick=${() => open?.(where)}>${shown}</button>`;
  const few = hidden <= STEP;
  return html`<tr class="pick"><td colspan=${columns}><div class="fold">
    ${fold > 0 && !few && button("top", `Show ${STEP} lines more, from the top`, `↓ ${STEP}`)}
    ${fold < ours.length && !few && button("bottom", `Show ${STEP} lines more, from the bottom`, `↑ ${STEP}`)}
    ${hidden <= ALL && button("all", `Show all ${number(hidden)} lines`, "all")}<span>⋯ ${plural(hidden, "line")} unchanged</span></div></td></tr>`;
}

/** @param {{columns: number, count: number, what: string}} props */
const Left = ({ columns, count, what }) => html`<tr class="pick"><td colspan=${columns}>⋯ ${plural(count, "line")} ${what}</td></tr>`;

/**
 * One conflicting place.
 * @param {{region: Placed, sides: readonly SideName[], total: number, settled: boolean, off: boolean, decision: Decision | null, decide: (decision: Decision | null) => void}} props
 */
function Place({ region, sides, total, settled, off, decision, decide }) {
  const name = `Conflict ${region.number} of ${total}`;
  const state = settled ? "decided" : decision === null ? "not decided" : decision.text !== null ? "edited" : "decided";
  return html`<tbody class=${"place " + (decision || settled ? "" : "open")} data-place=${region.number} tabindex="-1" aria-label=${`${name}: ${state}`}>
    <tr class="pick"><td colspan=${2 * sides.length}><div class="row">
      <strong>${name}</strong>
      <span class="segments" role="group" aria-label=${`What becomes of conflict ${region.number}`}>${TAKES.map((take) => html`<button type="button" key=${take} disabled=${off}
        aria-pressed=${decision?.take === take ? "true" : "false"} onClick=${() => decide({ take, text: null })}>${TAKE_NAMES[take]}</button>`)}</span>
      <span class=${"tag " + (decision || settled ? "" : "warn")}>${state}</span>
      ${decision && !settled && !off && html`<button type="button" class="quiet small" aria-label=${`leave open: conflict ${region.number}`} onClick=${() => decide(null)}>leave open</button>`}
    </div></td></tr>
    <${Rows} region=${region} sides=${sides} />
    ${decision && !off && html`<tr class="edit"><td colspan=${2 * sides.length}><${Editor} region=${region} decision=${decision} decide=${decide} /></td></tr>`}
  </tbody>`;
}

/** @param {{region: Placed, decision: Decision, decide: (decision: Decision) => void}} props */
function Editor({ region, decision, decide }) {
  const plain = written(region, decision.take);
  const name = `Result of conflict ${region.number}`;
  if (plain === null && decision.text === null) return html`<p class="dim small">${region.texts ? "It has carriage returns within lines, which cannot be edited here." : "It is too long to be edited here."} It is taken as it is.</p>`;
  const text = decision.text ?? plain ?? "";
  return html`<label class="field"><span class="small">${name}${decision.text === null ? "" : ", edited"}</span>
    <textarea aria-label=${name} spellcheck=${false} autocomplete="off" rows=${Math.min(30, Math.max(2, text.split("\n").length))} value=${text}
      onInput=${(/** @type {any} */ event) => decide({ ...decision, text: event.currentTarget.value })}></textarea></label>
    <div class="row">${(decision.unseen || unseen(linesOf(region, decision.take))) && html`<span class="tag warn">It holds characters that are not visible here: they stay where they are.</span>`}
    ${decision.text !== null && plain !== null && html`<button type="button" class="small" onClick=${() => decide({ take: decision.take, text: null })}>As it was</button>`}</div>`;
}

const FROM = { same: "", ours: "project's", theirs: "fork's", both: "both", base: "original", written: "written here", conflict: "" };

/**
 * What comes out.
 * @param {{pieces: readonly import("./merge.js").Piece[]}} props
 */
export function Outcome({ pieces }) {
  return html`<table class="lines outcome" aria-label="The result">
    <colgroup><col class="n" /><col class="from" /><col /></colgroup>
    <thead class="hidden"><tr><th scope="col">Line</th><th scope="col">From</th><th scope="col">Text</th></tr></thead>
    <tbody>${pieces.map((piece, at) => html`<${PieceRows} key=${at} piece=${piece} />`)}</tbody>
  </table>`;
}

/** @param {{piece: import("./merge.js").Piece}} props */
function PieceRows({ piece: { from, place, lines, hidden, fold, more } }) {
  const [all, setAll] = useState(false);
  if (lines === null) return html`<tr class="undecided"><td class="number"></td><td class="from">open</td><td>Conflict ${place} is not decided.</td></tr>`;
  if (!lines.length) return place ? html`<tr class="taken"><td class="number"></td><td class="from">${FROM[from]}</td><td class="dim">nothing</td></tr>` : null;
  const rows = (/** @type {readonly Line[]} */ some) => some.map((line) => html`<tr key=${numberOf(line)} class=${from === "same" ? "" : "taken"}>
    <td class="number">${numberOf(line)}</td><td class="from">${FROM[from]}</td><td class="code">${code(line, false)}</td></tr>`);
  if (hidden > 0) {
    return html`<${Fragment}>${rows(lines.slice(0, fold))}<${Left} columns=${3} count=${hidden} what=${from === "same" ? "unchanged" : "more"} />${rows(lines.slice(fold))}
      ${more > 0 && html`<${Left} columns=${3} count=${more} what="more" />`}</${Fragment}>`;
  }
  const shown = all ? lines : lines.slice(0, MOST);
  return html`<${Fragment}>${rows(shown)}${shown.length < lines.length && html`<tr class="pick"><td colspan="3"><button type="button" class="small" onClick=${() => setAll(true)}>${
    plural(lines.length - MOST, "line")} more</button></td></tr>`}${more > 0 && html`<${Left} columns=${3} count=${more} what="more" />`}</${Fragment}>`;
}
