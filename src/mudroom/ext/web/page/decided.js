// Decided conflicts, as the review shows them.
import { html, useEffect, useRef } from "./html.js";
import { useLoaded } from "./load.js";
import { counted } from "./plural.js";
import { loses } from "./telling.js";

/**
 * The conflicts with their decisions; null: not known.
 * @param {string} path @param {any} standing @param {any} changes @returns {import("./telling.js").Conflict[] | null}
 */
export function useKnown(path, standing, changes) {
  const some = standing.drift > 0 || standing.conflicts > 0;
  const { data, error, reload } = useLoaded(some ? path + "/conflicts" : null, (what) => what === "forks" || what === "applies");
  const about = useRef("");
  const now = JSON.stringify([standing.drift, standing.drifted, changes.fingerprint]);
  useEffect(() => {
    if (about.current && about.current !== now) reload();
    about.current = now;
  }, [now]);
  return some ? (error ? null : data?.conflicts ?? null) : standing.drift === 0 ? NONE : null;
}

/** @type {import("./telling.js").Conflict[]} */
const NONE = [];

/** Why no part of a file can be chosen. @param {{said: string, isPart: boolean, to: string}} props */
export function Decided({ said, isPart, to }) {
  return html`<p class="banner"><span>Decided as a whole: see <a href=${to}>Conflicts</a>.</span> <span class="dim">${said}</span>
    ${isPart && html`<strong>Only a part of it is chosen: choose all of it, or none.</strong>`}</p>`;
}

/** Files that both the fork and the project have changed. @param {{standing: any, to: string}} props */
export function Drift({ standing: { drift, conflicts, known }, to }) {
  const settled = (known ?? []).filter((/** @type {any} */ one) => one.decided);
  const lost = settled.filter(loses).length;
  const rest = drift - conflicts - settled.length;
  const parts = [
    conflicts > 0 && html`${counted(conflicts, "conflict")} to <a href=${to}>decide</a>`,
    settled.length > 0 && html`${settled.length.toLocaleString("en")} <a href=${to}>decided</a>${lost > 0 && `, ${lost.toLocaleString("en")} of them overwrite changes of the project`}`,
    known && rest > 0 && (conflicts || settled.length ? "the rest is merged" : "what you apply is merged with that"),
  ].filter(Boolean);
  return html`<p class=${"banner" + (lost ? " warn" : "")}><span>${counted(drift, "of these files was", "of these files were")} changed in the project meanwhile${parts.map((one, at) => [at ? "; " : ": ", one])}.</span></p>`;
}
