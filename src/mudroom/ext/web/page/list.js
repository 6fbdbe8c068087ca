// A virtual list or tree: only visible lines are rendered.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";

export const HEIGHT = 30; // pixels of a line
const AROUND = 12; // lines above and below the visible ones

/**
 * @param {{label: string, tree: boolean, items: import("./tree.js").Item[], active: number, onActive: (at: number) => void,
 *   draw: (item: import("./tree.js").Item) => any, checked?: (item: import("./tree.js").Item) => "true" | "false" | "mixed",
 *   onOpen: (item: import("./tree.js").Item) => void}} props
 * `checked`: whether a line is chosen; without it nothing can be chosen. The line that is `active` is kept in sight. Its keys are the frame's (keys.js), so they count wherever the keyboard is.
 */
export function Lines({ label, tree, items, active, onActive, draw, checked, onOpen }) {
  const element = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [seen, setSeen] = useState({ first: 0, count: Math.ceil(innerHeight / HEIGHT) + AROUND });
  const look = () => {
    const box = element.current;
    if (!box) return;
    const first = Math.max(0, Math.floor(box.scrollTop / HEIGHT) - AROUND);
    const count = Math.ceil(box.clientHeight / HEIGHT) + 2 * AROUND;
    setSeen((before) => (before.first === first && before.count >= count ? before : { first, count })); // a few more do no harm
  };
  useEffect(() => {
    const watching = new ResizeObserver(look);
    if (element.current) watching.observe(element.current);
    return () => watching.disconnect();
  }, []);
  useLayoutEffect(() => {
    const box = element.current;
    if (!box || active < 0) return;
    const top = active * HEIGHT;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + HEIGHT > box.scrollTop + box.clientHeight) box.scrollTop = top + HEIGHT - box.clientHeight;
    look();
  }, [active, items]);
  const shown = items.slice(seen.first, seen.first + seen.count);
  const id = (/** @type {number} */ at) => `line-${at}`;
  return html`<div ref=${element} class="lines" role="tree" tabindex="0" aria-label=${label} aria-multiselectable=${checked && "true"} onScroll=${look}
    aria-activedescendant=${active >= 0 && active < items.length ? id(active) : undefined}>
    <div class="all" role="presentation" style=${{ height: items.length * HEIGHT + "px" }}>
      ${within(shown, items, active, seen.first).map(({ item, at }) => html`<div key=${item.key} id=${id(at)} role="treeitem" class=${"line" + (at === active ? " active" : "")}
        style=${{ top: at * HEIGHT + "px", paddingLeft: tree ? item.level * 14 - 6 + "px" : undefined }}
        aria-level=${item.level} aria-posinset=${item.position} aria-setsize=${item.among} aria-selected=${String(at === active)}
        aria-checked=${checked?.(item)} aria-expanded=${item.row ? undefined : String(item.open)}
        onClick=${() => (item.row ? onActive(at) : onOpen(item))}>${draw(item)}</div>`)}
    </div></div>`;
}

/** The active line is rendered even if it is not visible, because `aria-activedescendant` refers to it.
 * @param {import("./tree.js").Item[]} shown @param {import("./tree.js").Item[]} items @param {number} active @param {number} first */
function within(shown, items, active, first) {
  const found = shown.map((item, index) => ({ item, at: first + index }));
  if (active >= 0 && active < items.length && (active < first || active >= first + shown.length)) found.push({ item: items[active], at: active });
  return found;
}
