// What is told of an apply before it: how much it is, and what becomes of what the project has changed meanwhile. Pure.
//
// 1. "Merged" is said only of what is merged: where one side is taken, the other one is lost, and that is said.
// 2. As long as it is not known what is decided, nothing is said of what becomes of it.
import { counted } from "./picked.js";

/** @typedef {import("./picked.js").Picked} Picked */
/** @typedef {{id: string, path: string, decided: boolean, take?: string, base?: any, ours: any, theirs: any}} Conflict as the API has it */
/** @typedef {{id: string, path: string}} Drifted */
/** @typedef {"open" | "replaces" | "deletes" | "returns" | "stays" | "merged"} Fate */

/** What becomes of it. @param {Conflict} one @returns {Fate} */
export function fateOf({ decided, take, ours, theirs }) {
  if (!decided) return "open";
  if (take === "content") return "merged";
  if (take === "ours") return "stays";
  const stays = take === "theirs" && theirs.side.exists;
  if (!ours.side.exists) return stays ? "returns" : "stays";
  return stays ? "replaces" : "deletes";
}

/** Each with what is said before an apply, and how it is marked. @type {[Fate, string, string][]} */
const FATES = [
  ["replaces", "Replaces what the project has changed, as decided", "bad"],
  ["deletes", "Deletes what the project has changed, as decided", "bad"],
  ["returns", "Brings back what the project has deleted, as decided", "warn"],
  ["open", "Conflicts with the project, and stays in the fork until it is decided", "warn"],
  ["stays", "Stays as the project has it, as decided", ""],
];
/** For the row of a file. @type {Record<Fate, string>} */
const SAID = {
  open: "", replaces: "decided: the fork's; it replaces what the project has changed", deletes: "decided: it is deleted, with what the project has changed",
  returns: "decided: the fork's; the project has deleted it", stays: "decided: it stays as the project has it", merged: "decided: merged",
};

/** What is decided, in a line; empty: nothing is. @param {Conflict | undefined} one */
export const saidOf = (one) => (one ? SAID[fateOf(one)] : "");

/** Whether something of the project's is lost. @param {Conflict} one */
export const loses = (one) => ["replaces", "deletes"].includes(fateOf(one));

/**
 * What becomes of what both have changed, among what is chosen.
 * @param {import("./picked.js").Row[]} rows @param {Picked} picked @param {Drifted[]} drifted @param {Conflict[] | null} known null: it is not known
 * @returns {[string, string[], string][]} what is said, of which paths, and how it is marked
 */
export function fates(rows, picked, drifted, known) {
  const left = new Set(rows.filter((row) => !picked.has(row.id)).map((row) => row.id));
  const chosen = (known ?? []).filter((one) => !left.has(one.id));
  const of = (/** @type {Fate} */ fate) => chosen.filter((one) => fateOf(one) === fate).map((one) => one.path);
  const flagged = known ? [] : rows.filter((row) => row.flags.includes("conflict") && picked.has(row.id)).map((row) => row.path);
  const there = new Set([...flagged, ...(known ?? []).filter((one) => fateOf(one) !== "merged").flatMap(placesOf)]);
  const rest = drifted.filter((one) => !left.has(one.id) && !there.has(one.path)).map((one) => one.path);
  return [
    .../** @type {[string, string[], string][]} */ (FATES.map(([fate, label, mark]) => [label, fate === "open" ? [...of(fate), ...flagged] : of(fate), mark])),
    [known ? "Changed in the project meanwhile: merged" : "Changed in the project meanwhile", rest, ""],
  ];
}

/** A file may have been moved by a side. @param {Conflict} one */
const placesOf = (one) => [one.path, one.base?.path, one.ours.path].filter(Boolean);

/** Of how many files only a part is chosen. @param {import("./picked.js").Row[]} rows @param {Picked} picked */
export const inPart = (rows, picked) => rows.reduce((sum, row) => sum + (picked.get(row.id) ? 1 : 0), 0);

/** @param {number} count */
const number = (count) => count.toLocaleString("en");

/** How much is chosen, as somebody says it: "all 3", "2 of 3, 1 of them in part". @param {import("./picked.js").Row[]} rows @param {Picked} picked @param {number} total */
export function amount(rows, picked, total) {
  const [count, parts] = [counted(rows, picked), inPart(rows, picked)];
  const files = count < total ? `${number(count)} of ${number(total)}` : parts ? number(total) : `all ${number(total)}`;
  return parts ? `${files}, ${number(parts)} of them in part` : files;
}
