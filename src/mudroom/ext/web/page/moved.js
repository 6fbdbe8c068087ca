// A file that was moved and changed: two rows, an added and a deleted one, each chosen by itself. This is the line
// about it, with a button for the other view.
import { spelled } from "./code.js";
import { html } from "./html.js";
import { toFork } from "./route.js";

/** @typedef {{id: string, path: string, similarity: number, compared: boolean}} Other the other end, as the server has it */

/**
 * The warning if only one end is chosen; empty: both are chosen, or neither.
 * @param {ReadonlyMap<string, unknown>} picked @param {string} came @param {string} went @returns {string}
 */
export function half(picked, came, went) {
  if (picked.has(came) === picked.has(went)) return "";
  return picked.has(came) ? "Only the new file is chosen: the old one stays in the project, too."
    : "Only the deletion of the old file is chosen: the new one stays in the fork.";
}

/**
 * @param {{project: string, fork: string, file: string, other: Other, isNew: boolean, asNew: boolean,
 *   show: (asNew: boolean) => void, picked?: ReadonlyMap<string, unknown>}} props
 * `isNew`: the added file; `asNew`: it is shown as a new file; `picked`: the chosen rows
 */
export function Moved({ project, fork, file, other, isNew, asNew, show, picked }) {
  const said = picked ? (isNew ? half(picked, file, other.id) : half(picked, other.id, file)) : "";
  return html`<div class="banner moved" role="group" aria-label="Moved and changed">
    <span>${isNew ? "Moved from" : "Moved to"} <a class="name" href=${toFork(project, fork, "review", other.id)}>${spelled(other.path)}</a>, ${other.similarity} % the same.</span>
    <span role="status">${said && html`<strong>${said}</strong>`}</span>
    ${isNew && html`<span class="grow"></span><span class="segments" role="group" aria-label="Compared with">
      <button type="button" aria-pressed=${String(!asNew)} onClick=${() => show(false)}>Changes</button>
      <button type="button" aria-pressed=${String(asNew)} onClick=${() => show(true)}>As a new file</button></span>`}
  </div>`;
}
