// A value that several views share, and values stored in this browser.
import { useEffect, useState } from "./html.js";

/**
 * @template T
 * @param {T} first
 */
export function makeStore(first) {
  let value = first;
  /** @type {Set<(value: T) => void>} */
  const watching = new Set();
  return {
    get: () => value,
    /** @param {T} next */
    set(next) {
      if (next === value) return;
      value = next;
      for (const tell of [...watching]) tell(next);
    },
    /** For components: the current value, with updates. @returns {T} */
    use() {
      const [now, setNow] = useState(() => value);
      useEffect(() => {
        const tell = (/** @type {T} */ next) => setNow(() => next);
        watching.add(tell);
        tell(value);
        return () => void watching.delete(tell);
      }, []);
      return now;
    },
  };
}

/** Storage of the browser, which may deny it: no code depends on it. @param {() => Storage} storage */
function memory(storage) {
  return {
    /** @param {string} key @returns {string | null} */
    get(key) {
      try {
        return storage().getItem("mudroom." + key);
      } catch {
        return null;
      }
    },
    /** @param {string} key @param {string} value */
    set(key, value) {
      try {
        storage().setItem("mudroom." + key, value);
      } catch {
        return false;
      }
      return true;
    },
  };
}

/** As long as the browser keeps it. */
export const kept = memory(() => localStorage);
/** As long as this tab is open. */
export const ofTab = memory(() => sessionStorage);
