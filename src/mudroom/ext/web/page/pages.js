// Paged lists: the newest rows first, older ones on request, new ones as they arrive.
import { get, listen, query } from "./api.js";
import { useEffect, useRef, useState } from "./html.js";

const PAUSE = 200; // milliseconds

/**
 * @param {string} path @param {Record<string, unknown>} words of the query; another question begins anew
 * @param {string} field where the rows are in the answer; each has a `number`, the newest first
 * @param {string} project whose journal it is
 */
export function usePages(path, words, field, project) {
  const question = path + query(words);
  const [state, setState] = useState(/** @type {any} */ ({ question: "" }));
  const latest = useRef(state);
  latest.current = state;
  useEffect(() => {
    const aborter = new AbortController();
    let timer = 0;
    const load = () => get(question, aborter.signal).then(
      (data) => setState((/** @type {any} */ before) => newer(before, question, data, field)),
      (error) => aborter.signal.aborted || setState((/** @type {any} */ before) => ({ ...(before.question === question ? before : { question, rows: [] }), error })),
    );
    load();
    const stop = listen((kind, data) => {
      if (kind === "changed" ? data.project !== project || data.what !== "journal" : kind !== "hello" && kind !== "missed") return;
      clearTimeout(timer);
      timer = window.setTimeout(load, PAUSE);
    });
    return () => {
      clearTimeout(timer);
      aborter.abort();
      stop();
    };
  }, [question]);
  const mine = state.question === question ? state : { rows: null, following: null };
  const more = () => {
    const { following } = latest.current;
    setState((/** @type {any} */ now) => ({ ...now, busy: true }));
    get(path + query({ ...words, before: following })).then(
      (data) => setState((/** @type {any} */ now) => (now.question !== question || now.following !== following ? now
        : { ...now, busy: false, error: null, rows: [...now.rows, ...data[field]], following: data.following })),
      (error) => setState((/** @type {any} */ now) => ({ ...now, busy: false, error })),
    );
  };
  return { rows: mine.rows, following: mine.following, error: mine.error, busy: Boolean(mine.busy), more };
}

/**
 * The first page again: what is new in it goes before what is there.
 * @param {any} before @param {string} question @param {any} data @param {string} field
 */
function newer(before, question, data, field) {
  const rows = data[field];
  const fresh = { question, rows, following: data.following, error: null };
  if (before.question !== question || !before.rows?.length || !rows.length) return fresh;
  const at = rows.findIndex((/** @type {any} */ row) => row.number <= before.rows[0].number);
  return at < 0 ? fresh : { ...before, error: null, rows: [...rows.slice(0, at), ...before.rows] };
}
