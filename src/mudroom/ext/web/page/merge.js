// A three-way merge that is decided by the user: regions, the choice for each conflicting one, and the result. Pure.
//
// 1. A choice is stored by the content of its region, not by its number: it stays valid when another part of the file
//    has moved.
// 2. Text that is edited by hand begins with the unchanged text of a side, never with its displayed form.

import { NEW, ODD, OLD, returned, TEXT, UNTIL } from "./rows.js";

/** @typedef {import("./rows.js").Line} Line */
/** @typedef {"ours" | "theirs" | "both" | "base"} Take */
/** @typedef {{take: Take | "written", text: string | null, unseen?: boolean}} Decision `text`: the edited text; null: the side
 *   unchanged. `take` is "written" if the origin of the text is not known. `unseen`: it holds characters that an editor does not show */
/** @typedef {"same" | "ours" | "theirs" | "both" | "conflict"} Kind */
/** @typedef {{kind: Kind, base: Line[], ours: Line[], theirs: Line[], number?: number, hidden?: number,
 *   more?: [number, number, number], texts?: [string, string, string] | null}} Region as the API has it */
/** @typedef {Map<string, Decision>} Decisions by the keys of places */

/**
 * A region with all of its sides, and their own numbers.
 * @typedef {{kind: Kind, number: number, key: string, base: Line[], ours: Line[], theirs: Line[], hidden: number, fold: number,
 *   more: {base: number, ours: number, theirs: number}, texts: {base: string, ours: string, theirs: string} | null}} Placed
 * `key`: identifies a conflict. `hidden` lines are not here, before the one with the index `fold`; `more` are
 * not here at the end.
 */

/** @type {readonly Take[]} */
export const TAKES = ["ours", "theirs", "both", "base"];
const SIDES = /** @type {const} */ (["base", "ours", "theirs"]);
/** The side that is sent for a side, by kind of region. @type {Record<Kind, {base: "base" | "ours", ours: "base" | "ours", theirs: "base" | "ours" | "theirs"}>} */
const SENT = {
  same: { base: "ours", ours: "ours", theirs: "ours" },
  ours: { base: "base", ours: "ours", theirs: "base" },
  theirs: { base: "base", ours: "base", theirs: "theirs" },
  both: { base: "base", ours: "ours", theirs: "ours" },
  conflict: { base: "base", ours: "ours", theirs: "theirs" },
};

/** @param {readonly Region[]} regions @returns {Placed[]} */
export function placed(regions) {
  const at = { base: 1, ours: 1, theirs: 1 };
  /** @type {Map<string, number>} */
  const seen = new Map();
  return regions.map((region) => {
    const [base, ours, theirs] = region.more ?? [0, 0, 0];
    const sent = { base, ours, theirs };
    const hidden = region.hidden ?? 0;
    const fold = hidden ? jump(region.ours, at.ours) : 0;
    const sides = /** @type {{base: Line[], ours: Line[], theirs: Line[]}} */ ({});
    const more = { base: 0, ours: 0, theirs: 0 };
    for (const side of SIDES) {
      const from = SENT[region.kind][side];
      sides[side] = numbered(region[from], at[side], hidden, fold);
      more[side] = sent[from];
      at[side] += region[from].length + hidden + more[side];
    }
    const [one, two, three] = region.texts ?? ["", "", ""];
    const texts = region.texts ? { base: one, ours: two, theirs: three } : null;
    return { kind: region.kind, number: region.number ?? 0, key: keyOf(region, seen), ...sides, hidden, fold, more, texts };
  });
}

/** @param {Region} region @param {Map<string, number>} seen */
function keyOf(region, seen) {
  if (region.kind !== "conflict") return "";
  const said = JSON.stringify(region.texts ?? [region.base, region.ours, region.theirs].map((lines) => lines.map((line) => [line[TEXT], line[UNTIL] ?? 0])));
  const count = seen.get(said) ?? 0;
  seen.set(said, count + 1);
  return `${count} ${said}`;
}

/** Lines of a fold that are still hidden: the first of them, and how many to ask for. @typedef {{first: number, count: number}} Wanted */

/**
 * The lines to load to show more of a region's fold.
 * @param {Placed} region @param {"top" | "bottom" | "all"} where @param {number} step @returns {Wanted}
 */
export function wanted({ ours, hidden, fold }, where, step) {
  const first = fold ? numberOf(ours[fold - 1]) + 1 : numberOf(ours[0]) - hidden;
  const count = where === "all" ? hidden : Math.min(step, hidden);
  return { first: where === "bottom" ? first + hidden - count : first, count };
}

/**
 * The same regions with lines of a fold in their place.
 * @param {readonly Region[]} regions @param {number} at the region @param {Placed} region as it is placed @param {readonly Line[]} lines
 * @returns {Region[]}
 */
export const filled = (regions, at, { fold }, lines) => regions.map((one, index) => (index !== at ? one
  : { ...one, ours: [...one.ours.slice(0, fold), ...lines, ...one.ours.slice(fold)], hidden: (one.hidden ?? 0) - lines.length }));

/**
 * The index before which lines are left out.
 * @param {readonly Line[]} lines @param {number} first the number that the first line has if nothing is left out before it
 */
function jump(lines, first) {
  const found = lines.findIndex((line, at) => line[NEW] !== first + at);
  return found < 0 ? lines.length : found;
}

/** @param {readonly Line[]} lines @param {number} first @param {number} hidden @param {number} fold @returns {Line[]} */
const numbered = (lines, first, hidden, fold) => lines.map((line, at) =>
  /** @type {Line} */ ([line[0], 0, first + at + (at >= fold ? hidden : 0), ...line.slice(3)]));

/** @typedef {{size: number, choices: (Take | string[])[] | null, lines: Line[], more: number, text: string | null, unseen: boolean}} Result
 *   what is decided, as the API has it */

/**
 * The stored decisions, as a start for changes; null: it was not decided place by place.
 * @param {readonly Placed[]} regions @param {Result | null | undefined} result
 * @returns {Decisions | null}
 */
export function decided(regions, result) {
  const choices = result?.choices;
  if (!result || !choices) return null;
  return new Map(places(regions).map(({ key }, at) => [key, decisionOf(choices[at], result.unseen)]));
}

/** @param {Take | string[]} choice @param {boolean} unseen @returns {Decision} */
const decisionOf = (choice, unseen) => (Array.isArray(choice) ? { take: "written", text: choice.map((line) => line + "\n").join(""), unseen } : { take: choice, text: null });

/** The conflicting places, in order. @param {readonly Placed[]} regions */
export const places = (regions) => regions.filter((region) => region.kind === "conflict");

/** @param {Placed} region @param {Take | "written"} take @returns {Line[]} */
export const linesOf = ({ base, ours, theirs }, take) => ({ ours, theirs, base, both: [...ours, ...theirs], written: [] })[take];

/**
 * A side as text for editing; null: it cannot be edited.
 * @param {Placed} region @param {Take | "written"} take
 */
export function written({ texts }, take) {
  if (texts === null || take === "written") return null;
  const ended = (/** @type {string} */ text) => (text && !text.endsWith("\n") ? text + "\n" : text);
  const text = { ...texts, both: ended(texts.ours) + ended(texts.theirs) }[take].replaceAll("\r\n", "\n");
  // A text area makes LF of it: https://html.spec.whatwg.org/multipage/form-elements.html#concept-textarea-api-value
  return text.includes("\r") ? null : text;
}

/** Whether the lines hold characters that an editor does not show. @param {readonly Line[]} lines */
export const unseen = (lines) => lines.some((line) => (line[ODD] ?? []).length > (returned(line) ? 1 : 0));

/**
 * An edited text as lines; text after the last newline is a line, too.
 * @param {string} text
 */
export function split(text) {
  const lines = text.split("\n");
  if (lines[lines.length - 1] === "") lines.pop();
  return lines;
}

/**
 * The answer for one place: a side, or lines.
 * @param {Placed} region @param {Decision} decision
 * @returns {Take | string[]}
 */
export const answer = (region, { take, text }) => (take !== "written" && (text === null || text === written(region, take)) ? take : split(text ?? ""));

/**
 * The answers for all conflicting places; null: a place is undecided.
 * @param {readonly Placed[]} regions @param {Decisions} decisions
 * @returns {(Take | string[])[] | null}
 */
export function answers(regions, decisions) {
  /** @type {(Take | string[])[]} */
  const found = [];
  for (const region of places(regions)) {
    const decision = decisions.get(region.key);
    if (!decision) return null;
    found.push(answer(region, decision));
  }
  return found;
}

/** @typedef {{from: Kind | Take | "written", place: number, lines: Line[] | null, hidden: number, fold: number, more: number}} Piece
 *   of the result; `lines` is null where nothing is decided */

/**
 * What comes out.
 * @param {readonly Placed[]} regions @param {Decisions} decisions
 * @returns {Piece[]}
 */
export function outcome(regions, decisions) {
  let at = 1;
  return regions.map((region) => {
    const piece = pieceOf(region, decisions);
    if (piece.lines) {
      piece.lines = numbered(piece.lines, at, piece.hidden, piece.fold);
      at += piece.lines.length + piece.hidden + piece.more;
    }
    return piece;
  });
}

/** A result that was not made place by place. @param {Result} result @param {Piece["from"]} from @returns {Piece[]} */
export const onePiece = ({ lines, more }, from) => [{ from, place: 0, lines, hidden: 0, fold: 0, more }];

/** @param {Placed} region @param {Decisions} decisions @returns {Piece} */
function pieceOf(region, decisions) {
  const { kind, number: place, more, hidden, fold } = region;
  if (kind !== "conflict") {
    const side = kind === "theirs" ? "theirs" : "ours";
    return { from: kind, place, lines: region[side], hidden, fold, more: more[side] };
  }
  const decision = decisions.get(region.key);
  if (!decision) return { from: kind, place, lines: null, hidden: 0, fold: 0, more: 0 };
  const said = answer(region, decision);
  if (Array.isArray(said)) {
    const lines = said.map((text) => /** @type {Line} */ ([" ", 0, 0, text]));
    return { from: "written", place, lines, hidden: 0, fold: 0, more: 0 };
  }
  const lines = linesOf(region, said);
  if (said === "both") return { from: said, place, lines, hidden: more.ours, fold: region.ours.length, more: more.theirs };
  return { from: said, place, lines, hidden: 0, fold: 0, more: more[said] };
}

/** The number of a line on its side. @param {Line} line */
export const numberOf = (line) => line[NEW] || line[OLD];
