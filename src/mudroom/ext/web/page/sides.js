// Facts about both sides of a file besides its lines: type, mode, size, links. Images: picture.js.
import { html } from "./html.js";
import { spelled } from "./code.js";
import { plural, size } from "./wording.js";

/** @typedef {{exists: boolean, type: string, size: number, mode: string, target: string, lines: number, image: string}} Side */
/** @typedef {{path: string, kind: string, old: Side, new: Side, blocks: number, hunks: any[], flags?: string[]}} Difference */

const TYPES = /** @type {Record<string, string>} */ ({ file: "a file", directory: "a directory", symlink: "a symbolic link",
  fifo: "a named pipe", socket: "a socket", device: "a device" });
const KINDS = /** @type {Record<string, string>} */ ({
  masked: "It holds secrets: mudroom shows nothing of it, and the fork has never seen it as it is.",
  unknown: "What it was before is not known: it was edited in the project while the command was running. Only what the fork has now can be shown.",
  large: "It is too large to be compared line by line.",
  binary: "Binary file.",
});

/** @param {Side} side */
export const named = (side) => TYPES[side.type] ?? side.type;

/**
 * The facts, one sentence each.
 * @param {Difference} data @param {[string, string]} [names] of two candidates, instead of before and after
 * @returns {string[]}
 */
export function remarks({ kind, old, new: now, hunks }, names) {
  const found = [];
  if (names) {
    if (old.exists !== now.exists) found.push(`Only in ${names[old.exists ? 0 : 1]}: ${named(old.exists ? old : now)}.`);
    else if (old.type !== now.type) found.push(`${named(old)} in ${names[0]}, ${named(now)} in ${names[1]}.`);
    else if (old.mode !== now.mode) found.push(`Mode ${old.mode} in ${names[0]}, ${now.mode} in ${names[1]}.`);
    if (kind === "masked") found.push("It holds secrets: nothing of it is shown.");
    else if (kind !== "unknown" && KINDS[kind]) found.push(KINDS[kind]);
    return found;
  }
  if (!old.exists && now.exists && kind !== "unknown") found.push(`New: ${named(now)}${now.mode ? ", mode " + now.mode : ""}.`);
  if (old.exists && !now.exists) found.push(`Deleted: it was ${named(old)}.`);
  if (old.exists && now.exists) {
    if (old.type !== now.type) found.push(`It was ${named(old)}, and is ${named(now)} now.`);
    else if (old.mode !== now.mode && old.mode && now.mode) found.push(`Mode ${old.mode} → ${now.mode}.`);
    if (kind === "text" && !hunks.length && old.type === now.type) found.push("Its content is the same.");
  }
  if (KINDS[kind]) found.push(KINDS[kind]);
  return found;
}

/** @param {{side: Side, label: string}} props */
export function Facts({ side, label }) {
  if (!side.exists) return html`<div><h3>${label}</h3><p class="dim">not there</p></div>`;
  return html`<div><h3>${label}</h3><p>${named(side)}, ${size(side.size)}${side.lines ? ", " + plural(side.lines, "line") : ""}</p></div>`;
}

/** @param {{data: Difference, names?: [string, string]}} props */
export const Both = ({ data, names = ["Before", "After"] }) => html`<div class="sides"><${Facts} side=${data.old} label=${names[0]} /><${Facts} side=${data.new} label=${names[1]} /></div>`;

/** @param {{data: Difference}} props */
export function Links({ data }) {
  const one = (/** @type {Side} */ side, /** @type {string} */ label, /** @type {string} */ name, /** @type {string} */ sign) => side.exists &&
    html`<div class=${"target " + name}><span class="sign" aria-hidden="true">${sign}</span><span class="hidden">${label}</span>${
      side.type === "symlink" ? html`<code>→ ${spelled(side.target)}</code>` : named(side)}</div>`;
  const same = data.old.target === data.new.target && data.old.type === data.new.type;
  return html`<div class="targets">${same ? one(data.new, "unchanged", "", " ") : [one(data.old, "removed", "removed", "-"),
    one(data.new, "added", "added", "+")]}</div>`;
}
