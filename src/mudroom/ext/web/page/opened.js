// Unchanged lines of a conflict, loaded as their folds are opened.
import { get, query } from "./api.js";
import { useMemo, useState } from "./html.js";
import { filled, placed, wanted } from "./merge.js";

export const STEP = 20; // lines that are opened at once

/** @typedef {import("./merge.js").Region[]} Regions */
/** @typedef {(at: number, where: "top" | "bottom" | "all") => Promise<void>} Open of the region with that index */

/**
 * The regions of a conflict with what is opened of them, for as long as the sides are these.
 * @param {string} place @param {any} data
 * @returns {{regions: import("./merge.js").Placed[], open: Open, trouble: string}}
 */
export function useOpened(place, data) {
  const [sides] = data.versions.split(".");
  const [opened, setOpened] = useState({ sides: "", regions: /** @type {Regions} */ ([]), trouble: "" });
  const known = (/** @type {typeof opened} */ now) => (now.sides === sides ? now.regions : /** @type {Regions} */ (data.regions));
  const all = known(opened);
  const regions = useMemo(() => placed(all), [all]);
  /** @type {Open} */
  const open = (at, where) => get(`${place}/conflict/lines` + query({ file: data.id, versions: data.versions, ...wanted(regions[at], where, STEP) })).then(
    // a fold may have been opened meanwhile, and the region is another one
    ({ lines }) => setOpened((now) => (known(now)[at] === all[at] ? { sides, regions: filled(known(now), at, regions[at], lines), trouble: "" } : now)),
    (error) => setOpened((now) => ({ sides, regions: known(now), trouble: error.message })),
  );
  return { regions, open, trouble: opened.sides === sides ? opened.trouble : "" };
}
