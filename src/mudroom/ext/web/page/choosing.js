// The choice of changes of a fork, kept until it is applied: across views and reloads.
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./html.js";
import { makePending } from "./pending.js";
import { among, carried, dropped, everything, initial, together } from "./picked.js";
import { ofTab } from "./store.js";
import { gathered, needs } from "./together.js";

const pending = makePending(ofTab);
/** @type {Picked} */
const NOTHING = new Map();
const PAUSE = 300; // milliseconds: many choices in a row are written once

/** @param {string} project @param {string} fork */
const keyOf = (project, fork) => `${project}/${fork}`;

/** Forget the choice: the fork is gone, or its choice was applied. @param {string} project @param {string} fork */
export function forgetChoice(project, fork) {
  pending.forget(keyOf(project, fork));
  pending.write();
}

/** @typedef {import("./picked.js").Picked} Picked */
/** @typedef {import("./picked.js").Row & import("./together.js").Row} Row */
/** @typedef {{picked: Picked, others: readonly string[]}} Chosen `others`: rows that are no longer chosen, because they have changed */

/** The choice before the user has made one. @param {Row[]} rows */
const first = (rows) => gathered(initial(rows), needs(rows), null);

/** @param {Chosen} now @param {Row[]} known @param {Row[]} rows @param {number} total @param {boolean} lost @returns {Chosen} */
function brought({ picked, others }, known, rows, total, lost) {
  const all = everything(picked, first(known)) && !(lost && !picked.size);
  const next = gathered(together(NOTHING, carried(picked, known, rows, total, all), rows), needs(rows), null);
  return { picked: next, others: [...others, ...dropped(picked, next, rows)] };
}

/**
 * What is chosen among the rows of a fork. Others than before: what was chosen of those, by the rules of `carried`.
 * @param {string} project @param {string} fork
 * @param {{rows: Row[], total: number, created: number}} changes
 * @returns {{picked: Picked, setPicked: (next: (now: Picked) => Picked) => void, forget: () => void, others: Row[], lost: boolean}}
 *   `forget`: nothing is kept from now on; `others`: were chosen, are others now, and are not chosen any more; `lost`: what
 *   was chosen could not be kept, and nothing is chosen
 */
export function usePicked(project, fork, { rows, total, created }) {
  const key = keyOf(project, fork);
  const [was] = useState(() => pending.get(key, created));
  const lost = Boolean(was?.lost);
  const [{ picked, others }, setChosen] = useState(() => (was ? brought({ picked: was.picked, others: [] }, /** @type {any} */ (was.rows), rows, total, lost) : { picked: first(rows), others: [] }));
  const before = useRef(was ? among(/** @type {any} */ (was.rows), rows, total) : rows);
  const last = useRef(rows);
  const keeps = useRef(true);
  useLayoutEffect(() => { // before painting: a choice among other rows must not be applied
    if (last.current === rows) return;
    const known = before.current;
    last.current = rows;
    before.current = among(known, rows, total);
    setChosen((now) => brought(now, known, rows, total, lost));
  }, [rows]);
  useEffect(() => {
    if (!keeps.current) return;
    pending.set(key, { created, picked, rows: before.current });
    const timer = setTimeout(pending.write, PAUSE);
    return () => clearTimeout(timer);
  }, [picked]);
  useEffect(() => {
    addEventListener("pagehide", pending.write);
    return () => (removeEventListener("pagehide", pending.write), pending.write());
  }, []);
  const forget = () => {
    keeps.current = false;
    forgetChoice(project, fork);
  };
  const choose = useCallback((/** @type {(now: Picked) => Picked} */ next) => setChosen((now) => {
    const chosen = gathered(together(now.picked, next(now.picked), rows), needs(rows), now.picked);
    return { picked: chosen, others: now.others.filter((id) => !chosen.has(id)) };
  }), [rows]);
  const gone = useMemo(() => new Set(others), [others]);
  return { picked, setPicked: choose, forget, others: rows.filter((row) => gone.has(row.id)), lost: lost && !picked.size };
}
