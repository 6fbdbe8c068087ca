// The keyboard is never lost (WCAG 2.2, 2.4.3 and 2.4.7): what had it may go, or be out of use for a while, when something
// is done; a browser gives it to the whole document then (https://html.spec.whatwg.org/multipage/interaction.html#focus-fixup-rule),
// and whoever cannot see where that is begins at the top.
//
// 1. Gone: the nearest that is left of what was around it has it next, or the view as a whole.
// 2. Out of use (a button that is at work): it has it again when it can be used, if nobody took it meanwhile. That may never
//    be: after a while it is lent to what is around, and whoever goes on from there has it.
// 3. Whoever clicks on nothing wants it nowhere: then nothing is done.
// Who knows better where it belongs, gives it there himself before; a dialog does (dialog.js).

const PATIENCE = 1000; // milliseconds that it is kept for what is out of use

/** What had the keyboard last, and all that is around it, the nearest first. @type {Element[]} */
let chain = [];

/** What has it meanwhile, and all around what it belongs to. */
let lent = /** @type {{to: Element, from: Element[]} | null} */ (null);
let waits = 0;

/** Whether it can have the keyboard. @param {Element} element */
const usable = (element) => element.isConnected && !element.matches(":disabled") && element.getClientRects().length > 0;

/** What has just gone out of use has it for the rest of the frame, after which nobody may be told of anything any more. */
const nowhere = () => document.activeElement === null || document.activeElement.matches("body, :disabled");

/** It belongs there, though it may be out of use at the moment. @param {Element | null} element */
export function belongs(element) {
  chain = [];
  for (let one = element; one && one !== document.body; one = one.parentElement) chain.push(one);
}

/** What has the keyboard, or had it before that was out of use. */
export const holder = () => (nowhere() ? chain[0] ?? null : document.activeElement);

function look() {
  if (lent && document.activeElement === lent.to) return bring(lent.from[0]);
  const [last, ...around] = chain;
  if (!last || !nowhere()) return;
  if (last.isConnected && last.matches(":disabled")) {
    waits ||= window.setTimeout(lend, PATIENCE); // it may come back
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

/** Back to what it belongs to, if that can have it. @param {Element} owner */
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

/** From now on, for as long as the page is open. */
export function keepFocus() {
  addEventListener("focusin", ({ target }) => {
    if (target !== lent?.to) lent = null;
    belongs(target instanceof Element ? target : null);
  });
  addEventListener("pointerdown", ({ target }) => {
    lent = null;
    const owner = document.activeElement;
    // what has it already, and is clicked, is given it by nobody once more
    belongs(!nowhere() && target instanceof Node && owner?.contains(target) ? owner : null);
  }, true);
  const changes = new MutationObserver(() => ((chain.length && nowhere()) || lent) && requestAnimationFrame(look));
  changes.observe(document.body, { childList: true, subtree: true, attributes: true, attributeFilter: ["disabled", "hidden"] });
}
