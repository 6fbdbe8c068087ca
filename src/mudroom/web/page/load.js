// What a view shows, asked for again whenever it may have changed. Never the answer to another question.
import { get, listen, takeOld } from "./api.js";
import { useLayoutEffect, useRef, useState } from "./html.js";

const PAUSE = 150; // milliseconds: many changes in a row are one

/**
 * The answer to GET path: `data`, or `error`; neither while it is on its way for the first time. The last answer stays
 * until there is a newer one, and `error` stands beside it.
 * @param {string | null} path null: nothing is asked
 * @param {(what: string, project: string) => boolean} [matters] which changes it may be about: of all that "changed" tells
 * @returns {{data: any, error: any, reload: (anew?: unknown) => void}} `reload(true)`: `data` is another object then, though it
 *   may say the same: somebody waits for an answer of now
 */
export function useLoaded(path, matters = () => false) {
  const [found, setFound] = useState(/** @type {{path: string | null, data?: any, error?: any}} */ ({ path: null }));
  const reload = useRef((/** @type {unknown} */ _anew) => {});
  const filter = useRef(matters);
  filter.current = matters;
  useLayoutEffect(() => { // not when it has been painted: nothing is there to be seen yet
    if (path === null) return;
    let timer = 0;
    let [asking, again, over] = [false, false, false];
    let [wanted, had] = [0, 0]; // how often another object
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
      if (asking) return void (again = true); // what is under way may be old by now; it is shown until there is a newer one
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
