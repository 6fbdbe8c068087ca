// The rows that the shown row cannot be applied without.
import { spelled } from "./code.js";
import { html, useMemo } from "./html.js";
import { needs } from "./together.js";

const NAMED = 8; // rows that are named

/** @param {{row: any, rows: any[]}} props */
export function Company({ row, rows }) {
  const needed = useMemo(() => needs(rows), [rows]).get(row.id);
  if (!needed) return null;
  const paths = rows.filter((one) => needed.has(one.id)).map((one) => one.path);
  const why = !row.flags.includes("type") ? "It is in a directory that was something else" : row.type === "directory" ? "It was not a directory" : "It was a directory";
  return html`<p class="banner"><span>${why}: it goes only together with <span class="name">${paths.slice(0, NAMED).map((one, at) => [at ? ", " : "", spelled(one)])}</span>${paths.length > NAMED ? ` and ${paths.length - NAMED} more` : ""}.</span></p>`;
}
