// Light, dark, or the setting of the system.
import { html } from "./html.js";
import { kept, makeStore } from "./store.js";

/** Each with what it is called. @type {[string, string, string][]} */
const THEMES = [["", "System colours", "◐"], ["light", "Light", "☀"], ["dark", "Dark", "☾"]];
const theme = makeStore(kept.get("theme") ?? "");

/** @param {string} name */
function show(name) {
  if (THEMES.some(([one]) => one && one === name)) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
}

show(theme.get());

/** @param {string} name */
export function setTheme(name) {
  theme.set(name);
  kept.set("theme", name);
  show(name);
}

export function nextTheme() {
  const at = THEMES.findIndex(([name]) => name === theme.get());
  setTheme(THEMES[(at + 1) % THEMES.length][0]);
}

export function ThemeSwitch() {
  const now = theme.use();
  return html`<span class="segments themes" role="group" aria-label="Colours">${THEMES.map(([name, label, sign]) => html`
    <button key=${name} class="icon" type="button" aria-pressed=${String(name === now)} title=${label} onClick=${() => setTheme(name)}>
      <span aria-hidden="true">${sign}</span><span class="hidden">${label}</span></button>`)}</span>`;
}
