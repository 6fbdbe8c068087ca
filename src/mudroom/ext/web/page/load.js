// Data of a view, loaded again whenever it may have changed. Answers to former requests are dropped.
import { get, listen, takeOld } from "./api.js";
import { useLayoutEffect, useRef, useState } from "./html.js";

const PAUSE = 150; // milliseconds: many changes in a row cause one request

/**
 * The answer to GET path: `data`, or `error`; neither before the first answer. The last answer stays
 * until there is a newer one, and `error` is set beside it.
 * @param {string | null} path null: no request
 * @param {(what: string, project: string) => boolean} [matters] which changes it may be about: of all that "changed" tells
 * @returns {{data: any, error: any, reload: (anew?: unknown) => void}} `reload(true)`: `data` is a new object then, even if it is
 *   equal: the caller waits for a current answer
 */
export function useLoaded(path, matters = () => false) {
  const [found, setFound] = useState(/** @type {{path: string | null, data?: any, error?: any}} */ ({ path: null }));
  const reload = useRef((/** @type {unknown} */ _anew) => {});
  const filter = useRef(matters);
  filter.current = matters;
  useLayoutEffect(() => { // before painting
    if (path === null) return;
    let timer = 0;
    let [asking, again, over] = [false, false, false];
    let [wanted, had] = [0, 0]; // requests for a new object
    let last = /** @type {any} */ (undefined);
    const aborter = new AbortController();
    const ask = async () => {
      const wish = wanted;
      try {
        const data = await get(path, aborter.signal, wish === had ? last : undefined);
        if (over) return;
        [last, had] = [data, wish];
        again ||= takeOld(data);
        setFound((before) => (before.path === path && before.data === data && !before.error ? before : { path, data }));
      } catch (error) {
        if (!over) setFound((before) => ({ path, data: before.path === path ? before.data : undefined, error }));
      }
    };
    const load = async () => {
      if (asking) return void (again = true); // the running request may be stale; its data is shown until the next answer
      asking = true;
      do {
        again = false;
        await ask();
      } while (again && !over);
      asking = false;
    };
    reload.current = (anew) => {
      if (anew === true) wanted++;
      load();
    };
    load();
    const stop = listen((kind, data) => {
      if (kind === "changed" ? !filter.current(data.what, data.project) : kind !== "hello" && kind !== "missed") return;
      clearTimeout(timer);
      timer = window.setTimeout(load, PAUSE);
    });
    return () => {
      clearTimeout(timer);
      over = true;
      aborter.abort();
      stop();
    };
  }, [path]);
  return { data: found.path === path ? found.data : undefined, error: found.path === path ? found.error : undefined, reload: (anew) => reload.current(anew) };
}
