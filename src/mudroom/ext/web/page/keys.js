// Keyboard shortcuts: views register their handlers; the help is made from the same table.
import { Dialog } from "./dialog.js";
import { html, useLayoutEffect, useRef } from "./html.js";
import { meant, named, SCOPES, SHORTCUTS } from "./shortcut.js";
import { kept, makeStore } from "./store.js";

/** @typedef {Record<string, (event: KeyboardEvent) => void | false>} Handlers */
/** Those of the nearest scope first. @type {{scope: string, handlers: {current: Handlers}}[]} */
let active = [];
const near = Object.keys(SCOPES); // the nearest last
const help = makeStore(false);
const wanted = makeStore(kept.get("keys") !== "off");

/**
 * Register handlers for the shortcuts of a scope, by their names in `SHORTCUTS`, as long as the component exists. A handler
 * that returns false passes the key on.
 * @param {string} scope @param {Handlers} handlers
 */
export function useKeys(scope, handlers) {
  const latest = useRef(handlers);
  latest.current = handlers;
  useLayoutEffect(() => { // together with the shown elements, not a frame later: keys in between would be lost
    const one = { scope, handlers: latest };
    active = [one, ...active].sort((a, b) => near.indexOf(b.scope) - near.indexOf(a.scope));
    return () => void (active = active.filter((other) => other !== one));
  }, [scope]);
}

/** @param {KeyboardEvent} event */
function press(event) {
  if (event.defaultPrevented || !wanted.get() || document.querySelector("dialog[open]")) return;
  const element = event.target instanceof HTMLElement ? event.target : document.body;
  const target = { tag: element.tagName, type: element.getAttribute("type") ?? "", role: element.getAttribute("role") ?? "", editable: element.isContentEditable };
  for (const one of active) {
    const shortcut = meant(event, target, one.scope);
    const run = shortcut && one.handlers.current[shortcut.name];
    if (run && run(event) !== false) {
      event.preventDefault();
      return;
    }
  }
}

addEventListener("keydown", press);

export const showHelp = () => help.set(true);

export function Help() {
  const open = help.use();
  const on = wanted.use();
  useKeys("page", { help: showHelp });
  if (!open) return null;
  const close = () => help.set(false);
  const toggle = () => {
    wanted.set(!on);
    kept.set("keys", on ? "off" : "on");
  };
  return html`<${Dialog} title="Shortcuts" wide onClose=${close}>
    <label class="check"><input type="checkbox" checked=${on} onChange=${toggle} /><span>Use shortcuts of a single key</span></label>
    <div class="shortcuts">${Object.entries(SCOPES).map(([scope, label]) => html`<${Group} key=${scope} scope=${scope} label=${label} />`)}</div>
    <div class="actions"><button type="button" class="primary" autofocus onClick=${close}>Close</button></div>
  </${Dialog}>`;
}

/** @param {{scope: string, label: string}} props */
function Group({ scope, label }) {
  const rows = SHORTCUTS.filter((one) => one.scope === scope);
  if (!rows.length) return null;
  return html`<section><h3>${label}</h3><dl>${rows.map((one) => html`<div key=${one.name}>
    <dt>${one.keys.map((key, at) => html`${at > 0 && " "}<kbd>${named(key)}</kbd>`)}</dt><dd>${one.what}</dd></div>`)}</dl></section>`;
}
