// Focus is never lost (WCAG 2.2, 2.4.3 and 2.4.7). The focused element may be removed, or disabled for a while; a
// browser then focuses the document (https://html.spec.whatwg.org/multipage/interaction.html#focus-fixup-rule), and a
// user who cannot see the position starts again at the top.
//
// 1. Removed: the nearest remaining element around it gets the focus, or the view as a whole.
// 2. Disabled (a button whose action is running): it gets the focus back when it is enabled, unless the user has moved
//    the focus. After a while the focus is lent to an element around it.
// 3. A click on an empty place removes the focus on purpose: nothing is done.
//
// Code that knows a better place focuses it first; a dialog does (dialog.js).

const PATIENCE = 1000; // milliseconds to wait for a disabled element

/** The last focused element and its ancestors, the nearest first. @type {Element[]} */
let chain = [];

/** The element that has the focus meanwhile, and the chain of the owner. */
let lent = /** @type {{to: Element, from: Element[]} | null} */ (null);
let waits = 0;

/** Whether an element can have the focus. @param {Element} element */
const usable = (element) => element.isConnected && !element.matches(":disabled") && element.getClientRects().length > 0;

/** A disabled element stays document.activeElement for the rest of the frame, and gets no events. */
const nowhere = () => document.activeElement === null || document.activeElement.matches("body, :disabled");

/** Set the owner of the focus, even if it is disabled now. @param {Element | null} element */
export function belongs(element) {
  chain = [];
  for (let one = element; one && one !== document.body; one = one.parentElement) chain.push(one);
}

/** The focused element, or the one that had the focus before it was disabled. */
export const holder = () => (nowhere() ? chain[0] ?? null : document.activeElement);

function look() {
  if (lent && document.activeElement === lent.to) return bring(lent.from[0]);
  const [last, ...around] = chain;
  if (!last || !nowhere()) return;
  if (last.isConnected && last.matches(":disabled")) {
    waits ||= window.setTimeout(lend, PATIENCE); // the element may be enabled again
    return;
  }
  give(usable(last) ? last : next(around));
}

/** @param {Element[]} around */
const next = (around) => around.find((one) => usable(one) && !one.matches("#app, .view")) ?? document.querySelector("main");

function lend() {
  waits = 0;
  const from = chain;
  if (!nowhere() || !from[0]?.isConnected || !from[0].matches(":disabled")) return look();
  give(next(from.slice(1)));
  if (document.activeElement && !nowhere()) lent = { to: document.activeElement, from };
}

/** Return the focus to its owner, if possible. @param {Element} owner */
function bring(owner) {
  if (owner.isConnected && !usable(owner)) return;
  lent = null;
  if (owner.isConnected) give(owner);
}

/** @param {Element | null} element */
function give(element) {
  if (!(element instanceof HTMLElement)) return;
  if (element.tabIndex < 0 && !element.hasAttribute("tabindex")) element.tabIndex = -1;
  element.focus({ preventScroll: true });
}

/** Start; lasts as long as the page is open. */
export function keepFocus() {
  addEventListener("focusin", ({ target }) => {
    if (target !== lent?.to) lent = null;
    belongs(target instanceof Element ? target : null);
  });
  addEventListener("pointerdown", ({ target }) => {
    lent = null;
    const owner = document.activeElement;
    // an element that is focused and clicked gets no second focus event
    belongs(!nowhere() && target instanceof Node && owner?.contains(target) ? owner : null);
  }, true);
  const changes = new MutationObserver(() => ((chain.length && nowhere()) || lent) && requestAnimationFrame(look));
  changes.observe(document.body, { childList: true, subtree: true, attributes: true, attributeFilter: ["disabled", "hidden"] });
}
