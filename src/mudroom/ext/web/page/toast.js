// Short messages that disappear. Messages that need an action are shown elsewhere.
//
// They cover no content: they are the last element of the page and stay in view (`position: sticky`). Other elements at
// the lower edge stand on them: `--told` is their height. A focused element below them is scrolled into view when they
// appear, and later by `scroll-padding` (WCAG 2.2, 2.4.11).
import { html, useEffect, useRef } from "./html.js";
import { makeStore } from "./store.js";

const TIME = 8000; // milliseconds until one disappears; not while it is hovered or focused
let number = 0;

/** @typedef {{id: number, text: string, bad: boolean, action?: {label: string, run: () => void}}} Toast */
const toasts = makeStore(/** @type {Toast[]} */ ([]));

/**
 * @param {string} text
 * @param {{bad?: boolean, action?: {label: string, run: () => void}}} [more] `bad` ones stay until they are closed
 */
export function toast(text, { bad = false, action } = {}) {
  const one = { id: ++number, text, bad, action };
  toasts.set([...toasts.get().slice(-3), one]);
  if (!bad) leave(one.id);
}

/** A request that was refused, as a toast. @param {any} error */
export function complain(error) {
  toast([error.message, error.hint].filter(Boolean).join(": "), { bad: true });
}

/** @param {number} id */
function leave(id) {
  setTimeout(() => (document.querySelector(".toasts:hover, .toasts:focus-within") ? leave(id) : close(id)), TIME);
}

/** @param {number} id */
const close = (id) => toasts.set(toasts.get().filter((one) => one.id !== id));

/** Publish their height to the elements above. @param {Element} element */
function makeRoom(element) {
  const { height, top } = element.getBoundingClientRect();
  document.documentElement.style.setProperty("--told", `${height}px`);
  const holder = document.activeElement;
  if (height && holder?.closest("main") && !holder.matches("main") && holder.getBoundingClientRect().bottom > top) holder.scrollIntoView({ block: "nearest" });
}

export function Toasts() {
  const now = toasts.use();
  const element = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    const strip = /** @type {HTMLElement} */ (element.current);
    const watching = new ResizeObserver(() => makeRoom(strip));
    watching.observe(strip, { box: "border-box" });
    return () => watching.disconnect();
  }, []);
  return html`<div ref=${element} class="toasts" role="status" aria-live="polite" aria-label="Messages">${now.map((one) => html`
    <div key=${one.id} class=${"toast" + (one.bad ? " bad" : "")}><span class="grow name">${one.text}</span>
      ${one.action && html`<button type="button" onClick=${() => (close(one.id), one.action?.run())}>${one.action.label}</button>`}
      <button type="button" class="quiet icon" onClick=${() => close(one.id)}><span aria-hidden="true">✕</span><span class="hidden">Close the message</span></button>
    </div>`)}</div>`;
}
