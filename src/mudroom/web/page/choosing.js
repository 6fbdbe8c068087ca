// What somebody chooses of a fork, kept until it is applied: while other views are looked at, and over a reload.
import { useCallback, useEffect, useRef, useState } from "./html.js";
import { makePending } from "./pending.js";
import { among, carried, initial, together } from "./picked.js";
import { ofTab } from "./store.js";

const pending = makePending(ofTab);
/** @type {import("./picked.js").Picked} */
const NOTHING = new Map();
const PAUSE = 300; // milliseconds: many choices in a row are written once

/** @param {string} project @param {string} fork */
const keyOf = (project, fork) => `${project}/${fork}`;

/** It is gone, or what was chosen of it is applied. @param {string} project @param {string} fork */
export function forgetChoice(project, fork) {
  pending.forget(keyOf(project, fork));
  pending.write();
}

/**
 * What is chosen among the rows of a fork. Others than before: what was chosen of those, by the rules of `carried`.
 * @param {string} project @param {string} fork
 * @param {{rows: import("./picked.js").Row[], total: number, created: number}} changes
 * @returns {{picked: import("./picked.js").Picked, setPicked: (next: (now: import("./picked.js").Picked) => import("./picked.js").Picked) => void, forget: () => void}}
 *   `forget`: nothing is kept from now on
 */
export function usePicked(project, fork, { rows, total, created }) {
  const key = keyOf(project, fork);
  const [was] = useState(() => pending.get(key, created));
  const [picked, setPicked] = useState(() => (was ? together(NOTHING, carried(was.picked, /** @type {any} */ (was.rows), rows, total), rows) : initial(rows)));
  const before = useRef(was ? among(/** @type {any} */ (was.rows), rows, total) : rows);
  const last = useRef(rows);
  const keeps = useRef(true);
  useEffect(() => {
    if (last.current === rows) return;
    const known = before.current;
    last.current = rows;
    before.current = among(known, rows, total);
    setPicked((now) => together(NOTHING, carried(now, known, rows, total), rows));
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
  const choose = useCallback((/** @type {(now: import("./picked.js").Picked) => import("./picked.js").Picked} */ next) => setPicked((now) => together(now, next(now), rows)), [rows]);
  return { picked, setPicked: choose, forget };
}
