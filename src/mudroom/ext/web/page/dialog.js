// Modal dialogs. They have the focus while they are open, and return it afterwards.
import { belongs, holder } from "./focus.js";
import { html, useEffect, useRef } from "./html.js";
import { makeStore } from "./store.js";

/**
 * @param {{title: string, onClose: () => void, wide?: boolean, children?: any}} props
 * Shown as long as it is rendered. `onClose`: Escape was pressed. The element with the attribute `autofocus` has the focus.
 */
export function Dialog({ title, onClose, wide = false, children }) {
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const opener = useRef(holder()); // now: the opener may be disabled by then
  useEffect(() => {
    const dialog = /** @type {HTMLDialogElement} */ (element.current);
    const before = opener.current;
    dialog.showModal();
    const first = dialog.querySelector("[autofocus]");
    if (first instanceof HTMLElement) first.focus({ preventScroll: true });
    dialog.scrollTop = 0; // the focused element may be its last button
    return () => {
      dialog.close();
      if (before instanceof HTMLElement && before.isConnected) {
        before.focus();
        if (document.activeElement !== before) belongs(before); // the action that it began is running
      } else document.querySelector("main")?.focus();
    };
  }, []);
  const cancel = (/** @type {Event} */ event) => {
    event.preventDefault();
    onClose();
  };
  return html`<dialog ref=${element} class=${wide ? "wide" : ""} aria-label=${title} onCancel=${cancel}>
    <div class="sheet"><h2>${title}</h2>${children}</div></dialog>`;
}

/** @typedef {{title: string, text: any, action: string, danger?: boolean, done: (yes: boolean) => void}} Asked */
const asked = makeStore(/** @type {Asked | null} */ (null));

/**
 * Ask for confirmation of an action that cannot be undone.
 * @param {{title: string, text: any, action: string, danger?: boolean}} what
 * @returns {Promise<boolean>}
 */
export function confirmed(what) {
  return new Promise((done) => {
    asked.get()?.done(false);
    asked.set({ ...what, done });
  });
}

/** @param {boolean} yes */
function end(yes) {
  const now = asked.get();
  asked.set(null);
  now?.done(yes);
}

addEventListener("hashchange", () => end(false)); // it was about the view before; "back" leads to another one

export function Confirmation() {
  const now = asked.use();
  if (!now) return null;
  return html`<${Dialog} key=${now.title} title=${now.title} onClose=${() => end(false)}>
    <div class="stack">${now.text}</div>
    <div class="actions"><button type="button" autofocus onClick=${() => end(false)}>Cancel</button>
      <button type="button" class=${"primary" + (now.danger ? " danger" : "")} onClick=${() => end(true)}>${now.action}</button></div>
  </${Dialog}>`;
}
