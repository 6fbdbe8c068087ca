// What was observed at a hunk: commands and turns, read when they are asked for.
import { atFork, get, query } from "./api.js";
import { html, useState } from "./html.js";
import { useKeys } from "./keys.js";

/** @typedef {{lines: string[], problem: string}} Observed */

/**
 * The button beside a hunk, and below it what was observed.
 * @param {import("./source.js").Place} place @param {readonly number[]} blocks of the hunk
 * @returns {{button: any, below: any}}
 */
export function useObserved(place, blocks) {
  const [seen, setSeen] = useState(/** @type {Observed | null} */ (null));
  if (place.old || place.new || place.asNew) return { button: false, below: false };
  const ask = async () => {
    if (seen) return setSeen(null);
    try {
      const { hunks } = await get(atFork(place.project, place.fork) + "/observed" + query({ file: place.file }));
      const own = hunks.find((/** @type {{blocks: number[]}} */ one) => one.blocks.includes(blocks[0]));
      setSeen(own ? { lines: own.lines, problem: "" } : { lines: [], problem: "the file has changed: look at it again" });
    } catch (error) {
      setSeen({ lines: [], problem: /** @type {Error} */ (error).message });
    }
  };
  return {
    button: html`<button type="button" class="small ask-observed" aria-expanded=${seen ? "true" : "false"} title="The commands and turns that were observed here (y)" onClick=${ask}>Observed</button>`,
    below: seen && html`<div class="observed" role="status">${seen.lines.map((one) => html`<p key=${one}>${one}</p>`)}${
      seen.problem && html`<p class="problem">${seen.problem}</p>`}</div>`,
  };
}

/** The key that asks at the focused hunk, or at the first. @param {{current: any}} root */
export function useObservedKey(root) {
  useKeys("diff", {
    observed: () => {
      const buttons = [...root.current.querySelectorAll("button.ask-observed")];
      const own = buttons.find((one) => one.closest("section").contains(document.activeElement)) ?? buttons[0];
      if (!own) return false;
      own.click();
    },
  });
}
