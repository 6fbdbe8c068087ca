// The summary before an apply: its size, and its effect on files that the project has changed. Pure.
//
// 1. "Merged" is said only of files that are merged: where one side is taken, the other one is lost, and that is shown.
// 2. While the decisions are not known, no effect is shown.
import { counted } from "./picked.js";

/** @typedef {import("./picked.js").Picked} Picked */
/** @typedef {{id: string, path: string, decided: boolean, take?: string, base?: any, ours: any, theirs: any}} Conflict as the API has it */
/** @typedef {{id: string, path: string}} Drifted */
/** @typedef {"open" | "replaces" | "deletes" | "returns" | "stays" | "merged"} Fate */

/** The effect of an apply on a conflict. @param {Conflict} one @returns {Fate} */
export function fateOf({ decided, take, ours, theirs }) {
  if (!decided) return "open";
  if (take === "content") return "merged";
  if (take === "ours") return "stays";
  const stays = take === "theirs" && theirs.side.exists;
  if (!ours.side.exists) return stays ? "returns" : "stays";
  return stays ? "replaces" : "deletes";
}

/** Effect, label before an apply, mark. @type {[Fate, string, string][]} */
const FATES = [
  ["replaces", "Overwrites changes of the project, as decided", "bad"],
  ["deletes", "Deletes changes of the project, as decided", "bad"],
  ["returns", "Restores files that the project has deleted, as decided", "warn"],
  ["open", "Conflicts with the project, and stays in the fork until it is decided", "warn"],
  ["stays", "Keeps the project's version, as decided", ""],
];
/** For the row of a file. @type {Record<Fate, string>} */
const SAID = {
  open: "", replaces: "decided: the fork's; it overwrites changes of the project", deletes: "decided: deleted, with changes of the project",
  returns: "decided: the fork's; the project has deleted it", stays: "decided: the project's version stays", merged: "decided: merged",
};

/** The decision in one line; empty: undecided. @param {Conflict | undefined} one */
export const saidOf = (one) => (one ? SAID[fateOf(one)] : "");

/** Whether changes of the project are lost. @param {Conflict} one */
export const loses = (one) => ["replaces", "deletes"].includes(fateOf(one));

/**
 * The effects on chosen files that both have changed.
 * @param {import("./picked.js").Row[]} rows @param {Picked} picked @param {Drifted[]} drifted @param {Conflict[] | null} known null: it is not known
 * @returns {[string, string[], string][]} label, paths, mark
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

/** How many files are chosen in part. @param {import("./picked.js").Row[]} rows @param {Picked} picked */
export const inPart = (rows, picked) => rows.reduce((sum, row) => sum + (picked.get(row.id) ? 1 : 0), 0);

/** @param {number} count */
const number = (count) => count.toLocaleString("en");

/** How many chosen files stay in the fork, since they conflict and are not decided. @param {import("./picked.js").Row[]} rows @param {Picked} picked @param {Conflict[] | null} known */
export function staying(rows, picked, known) {
  const open = new Set((known ?? []).filter((one) => fateOf(one) === "open").map((one) => one.id));
  return rows.filter((row) => picked.has(row.id) && (known ? open.has(row.id) : row.flags.includes("conflict"))).length;
}

/** The size of what lands in words: "all 3", "2 of 3, 1 of them in part". @param {import("./picked.js").Row[]} rows @param {Picked} picked @param {number} total @param {Conflict[] | null} [known] */
export function amount(rows, picked, total, known = null) {
  const [count, parts] = [counted(rows, picked) - staying(rows, picked, known), inPart(rows, picked)];
  const files = count < total ? `${number(count)} of ${number(total)}` : parts ? number(total) : `all ${number(total)}`;
  return parts ? `${files}, ${number(parts)} of them in part` : files;
}
