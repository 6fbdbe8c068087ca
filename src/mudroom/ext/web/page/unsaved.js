// The unsaved choices of a conflict for its view; and those that no longer fit, for reading.
import { makeDrafts } from "./drafts.js";
import { html, useEffect } from "./html.js";
import { ofTab } from "./store.js";
import { SIDE_WORDS } from "./tables.js";
import { plural } from "./wording.js";

const PAUSE = 300; // milliseconds: typed text is written once
const drafts = makeDrafts(ofTab);
/** @type {Record<string, string>} */
const TAKEN = { ...SIDE_WORDS, written: "written here" };

/** @param {string} project @param {string} fork @param {number} created when it was made */
export const unsavedOf = (project, fork, created) => drafts.of(`${project}/${fork}`, created);

/** Keep the drafts as long as this tab is open. */
export function useKept() {
  useEffect(() => {
    const timer = setTimeout(drafts.write, PAUSE);
    return () => clearTimeout(timer);
  });
  useEffect(() => {
    addEventListener("pagehide", drafts.write);
    return () => (removeEventListener("pagehide", drafts.write), drafts.write());
  }, []);
}

/** Choices for places that have changed. @param {{places: import("./merge.js").Decisions | null, keys: readonly string[], drop: () => void}} props */
export function Unfitting({ places, keys, drop }) {
  const left = [...places ?? []].filter(([key]) => !keys.includes(key)).map(([, decision]) => decision);
  if (!left.length) return null;
  return html`<details class="panel unfitting"><summary class="panel-head">Chosen for ${plural(left.length, "place")} as ${left.length === 1 ? "it was" : "they were"} before: no longer fits</summary>
    <div class="stack pad">${left.map(({ take, text }, at) => html`<div key=${at}><span class="dim small">${TAKEN[take]}${text === null ? "" : ", as it was written:"}</span>${text !== null && html`<pre tabindex="0">${text}</pre>`}</div>`)}
      <button type="button" class="small" onClick=${drop}>Drop this</button></div></details>`;
}
