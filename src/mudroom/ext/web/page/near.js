// Elements that are rendered when they come near the viewport: a long list stays cheap, and the scroll bar is right.
import { html, useEffect, useRef, useState } from "./html.js";

const MARGIN = "1500px";

/**
 * Calls `come` once, when the element is near.
 * @param {() => void} come @param {boolean} wanted
 * @returns {{current: any}}
 */
export function useNear(come, wanted) {
  const place = useRef(/** @type {any} */ (null));
  const call = useRef(come);
  call.current = come;
  useEffect(() => {
    if (!wanted || !place.current) return;
    const options = /** @type {any} */ ({ rootMargin: MARGIN, scrollMargin: MARGIN });
    const observer = new IntersectionObserver((seen) => {
      if (!seen.some((one) => one.isIntersecting)) return;
      observer.disconnect();
      call.current();
    }, options);
    observer.observe(place.current);
    return () => observer.disconnect();
  }, [wanted]);
  return place;
}

/**
 * @param {{lines: number, now?: boolean, make: () => any}} props `lines`: its height before it is rendered;
 * `now`: render at once
 */
export function Near({ lines, now = false, make }) {
  const [made, setMade] = useState(now);
  const place = useNear(() => setMade(true), !made);
  const height = `${lines * 1.35}rem`;
  const style = made ? { containIntrinsicSize: `auto ${height}` } : { height };
  return html`<div class="near" ref=${place} style=${style} aria-busy=${made ? undefined : "true"}>${made && make()}</div>`;
}
