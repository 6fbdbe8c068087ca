// The keyboard is never lost (WCAG 2.2, 2.4.3 and 2.4.7): what had it may go, or be out of use for a while, when something
// is done; a browser gives it to the whole document then (https://html.spec.whatwg.org/multipage/interaction.html#focus-fixup-rule),
// and whoever cannot see where that is begins at the top.
//
// 1. Gone: the nearest that is left of what was around it has it next, or the view as a whole.
// 2. Out of use (a button that is at work): it has it again when it can be used, if nobody took it meanwhile.
// 3. Whoever clicks on nothing wants it nowhere: then nothing is done.
// Who knows better where it belongs, gives it there himself before; a dialog does (dialog.js).

/** What had the keyboard last, and all that is around it, the nearest first. @type {Element[]} */
let chain = [];

/** Whether it can have the keyboard. @param {Element} element */
const usable = (element) => element.isConnected && !element.matches(":disabled") && element.getClientRects().length > 0;

const nowhere = () => document.activeElement === document.body || document.activeElement === null;

/** It belongs there, though it may be out of use at the moment. @param {Element | null} element */
export function belongs(element) {
  chain = [];
  for (let one = element; one && one !== document.body; one = one.parentElement) chain.push(one);
}

/** What has the keyboard, or had it before that was out of use. */
export const holder = () => (nowhere() ? chain[0] ?? null : document.activeElement);

function look() {
  const [last, ...around] = chain;
  if (!last || !nowhere()) return;
  if (last.isConnected && last.matches(":disabled")) return; // it may come back
  if (usable(last)) return give(last);
  give(around.find((one) => usable(one) && !one.matches("#app, .view")) ?? document.querySelector("main"));
}

/** @param {Element | null} element */
function give(element) {
  if (!(element instanceof HTMLElement)) return;
  if (element.tabIndex < 0 && !element.hasAttribute("tabindex")) element.tabIndex = -1;
  element.focus({ preventScroll: true });
}

/** From now on, for as long as the page is open. */
export function keepFocus() {
  addEventListener("focusin", ({ target }) => belongs(target instanceof Element ? target : null));
  addEventListener("pointerdown", () => void (chain = []), true);
  const changes = new MutationObserver(() => chain.length && nowhere() && requestAnimationFrame(look));
  changes.observe(document.body, { childList: true, subtree: true, attributes: true, attributeFilter: ["disabled", "hidden"] });
}
