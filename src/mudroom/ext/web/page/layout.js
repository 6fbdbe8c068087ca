// Unified or side by side: the last choice, and whether there is room for it.
import { useEffect, useRef, useState } from "./html.js";

const KEY = "mudroom.diff";
export const NARROW = 800; // pixels below which there is no room for two sides

const remembered = () => {
  try {
    return localStorage.getItem(KEY) === "split";
  } catch {
    return false;
  }
};

/** @returns {{split: boolean, setSplit: (split: boolean) => void}} */
export function useLayout() {
  const [split, set] = useState(remembered);
  const setSplit = (/** @type {boolean} */ next) => {
    set(next);
    try {
      localStorage.setItem(KEY, next ? "split" : "unified");
    } catch {
      // It is not remembered then.
    }
  };
  return { split, setSplit };
}

/**
 * Whether an element is narrow.
 * @returns {[{current: any}, boolean]}
 */
export function useNarrow(limit = NARROW) {
  const place = useRef(/** @type {any} */ (null));
  const [narrow, setNarrow] = useState(innerWidth < limit);
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const observer = new ResizeObserver(([entry]) => setNarrow(entry.contentRect.width < limit));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [place, narrow];
}
