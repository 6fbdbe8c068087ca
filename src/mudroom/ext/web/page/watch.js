// Commands and history: of one fork, or of all of a project.
import { Commands } from "./commands.js";
import { Disk } from "./disk.js";
import { Flows } from "./flows.js";
import { html, useState } from "./html.js";
import { Journal } from "./journal.js";
import { useKeys } from "./keys.js";
import { Timeline } from "./timeline.js";

/** @type {{name: string, label: string, make: any, forks: boolean}[]} */
const PARTS = [
  { name: "commands", label: "Commands", make: Commands, forks: false },
  { name: "checkpoints", label: "Checkpoints", make: Timeline, forks: true },
  { name: "network", label: "Network", make: Flows, forks: false },
  { name: "journal", label: "Journal", make: Journal, forks: false },
  { name: "disk", label: "Resources", make: Disk, forks: false },
];
let last = "commands"; // as long as the page is open

/** @param {{project: string, fork?: string}} props */
export function Watch({ project, fork }) {
  const parts = PARTS.filter((one) => fork || !one.forks);
  const [name, setName] = useState(last);
  const shown = parts.find((one) => one.name === name) ?? parts[0];
  const choose = (/** @type {string} */ next) => setName((last = next));
  const go = (/** @type {number} */ step) => {
    const next = parts[(parts.indexOf(shown) + step + parts.length) % parts.length];
    choose(next.name);
    document.getElementById("watch-" + next.name)?.focus();
  };
  const move = (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    go(step);
  };
  useKeys("watch", {
    "next-part": () => go(1),
    "previous-part": () => go(-1),
    field: () => {
      const input = document.querySelector("#watch-part input:not([type=checkbox])");
      if (!(input instanceof HTMLElement)) return false;
      input.focus();
    },
  });
  return html`<main class="page watch" tabindex="-1"><h1 class="hidden">Watch ${fork ?? "the project"}</h1>
    <div class="tabs parts" role="tablist" aria-label="What to watch" onKeyDown=${move}>${parts.map((one) => html`
      <button key=${one.name} id=${"watch-" + one.name} type="button" role="tab" aria-selected=${String(one === shown)} aria-controls="watch-part"
        tabindex=${one === shown ? 0 : -1} onClick=${() => choose(one.name)}>${one.label}</button>`)}</div>
    <div id="watch-part" role="tabpanel" aria-labelledby=${"watch-" + shown.name}>
      <${shown.make} key=${shown.name} project=${project} fork=${fork} /></div></main>`;
}
