// The list of changed files by what a mistake in each costs. Pure.
import { RISK_WORDS } from "./tables.js";

/** @typedef {import("./tree.js").Row} Row */
/** @typedef {import("./tree.js").Item} Item */

/** The headings that are folded at first: what is proven to change nothing, and what is only a repository's own files. @param {Row[]} rows */
export function folded(rows) {
  const generated = rows.filter((row) => riskOf(row, NONE) === "generated");
  return new Set(["risk dull", ...(generated.length && generated.every((row) => row.flags.includes("repository")) ? ["risk generated"] : [])]);
}

const NONE = /** @type {ReadonlySet<string>} */ (new Set());

/** @param {Row} row @param {ReadonlySet<string>} remarked ids of files with open remarks that were sent */
const riskOf = (row, remarked) => (row.flags.includes("conflict") ? "conflict" : remarked.has(row.id) ? "remark" : row.risk || "later");

/** Whether there is anything to order. @param {Row[]} rows @param {ReadonlySet<string>} [remarked] */
export const isMixed = (rows, remarked = NONE) => rows.some((row) => riskOf(row, remarked) !== riskOf(rows[0], remarked));

/** The visible lines: a heading for each risk, below it its files. @param {Row[]} rows @param {ReadonlySet<string>} closed keys of headings @param {ReadonlySet<string>} [remarked] as for `riskOf` @returns {Item[]} */
export function byRisk(rows, closed, remarked = NONE) {
  /** @type {Map<string, Row[]>} */
  const groups = new Map();
  for (const row of rows) {
    const risk = riskOf(row, remarked);
    const group = groups.get(risk);
    if (group) group.push(row);
    else groups.set(risk, [row]);
  }
  const present = Object.keys(RISK_WORDS).filter((risk) => groups.has(risk));
  return present.flatMap((risk, at) => {
    const members = /** @type {Row[]} */ (groups.get(risk)).sort((a, b) => (b.weight ?? 0) - (a.weight ?? 0));
    const key = `risk ${risk}`;
    const open = !closed.has(key);
    const sum = (/** @type {"added" | "removed"} */ name) => members.reduce((total, row) => total + row[name], 0);
    const heading = { key, name: RISK_WORDS[risk], level: 1, position: at + 1, among: present.length, row: null, ids: members.map((row) => row.id), added: sum("added"), removed: sum("removed"), open, heading: true };
    return [heading, ...(open ? members.map((row, index) => ({ key: row.id, name: row.path, level: 2, position: index + 1, among: members.length, row, ids: [row.id], added: row.added, removed: row.removed, open: false })) : [])];
  });
}
