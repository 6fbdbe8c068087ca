// What there is to say of both sides of a file besides its lines: what it was and is, modes, sizes, links, images.
import { html, useState } from "./html.js";
import { spelled } from "./code.js";
import { blob } from "./source.js";
import { plural, size } from "./wording.js";

/** @typedef {{exists: boolean, type: string, size: number, mode: string, target: string, lines: number, image: string}} Side */
/** @typedef {{path: string, kind: string, old: Side, new: Side, blocks: number, hunks: any[], flags?: string[]}} Difference */

const TYPES = /** @type {Record<string, string>} */ ({ file: "a file", directory: "a directory", symlink: "a symbolic link",
  fifo: "a named pipe", socket: "a socket", device: "a device" });
const KINDS = /** @type {Record<string, string>} */ ({
  masked: "It holds secrets: mudroom shows nothing of it, and the fork has never seen it as it is.",
  unknown: "What it was before is not known: it was edited in the project while the command was running. Only what the fork has now can be shown.",
  large: "It is too large to be compared line by line.",
  binary: "It is no text.",
});

/** @param {Side} side */
export const named = (side) => TYPES[side.type] ?? side.type;

/**
 * What happened, one sentence each.
 * @param {Difference} data
 * @returns {string[]}
 */
export function remarks({ kind, old, new: now, hunks }) {
  const found = [];
  if (!old.exists && now.exists && kind !== "unknown") found.push(`New: ${named(now)}${now.mode ? ", mode " + now.mode : ""}.`);
  if (old.exists && !now.exists) found.push(`Deleted: it was ${named(old)}.`);
  if (old.exists && now.exists) {
    if (old.type !== now.type) found.push(`It was ${named(old)}, and is ${named(now)} now.`);
    if (old.mode !== now.mode && old.mode && now.mode) found.push(`Mode ${old.mode} → ${now.mode}.`);
    if (kind === "text" && !hunks.length && old.type === now.type) found.push("Its content is the same.");
  }
  if (KINDS[kind]) found.push(KINDS[kind]);
  return found;
}

/** @param {{side: Side, label: string}} props */
function Facts({ side, label }) {
  if (!side.exists) return html`<div><h3>${label}</h3><p class="dim">not there</p></div>`;
  return html`<div><h3>${label}</h3><p>${named(side)}, ${size(side.size)}${side.lines ? ", " + plural(side.lines, "line") : ""}</p></div>`;
}

/** @param {{data: Difference}} props */
export const Both = ({ data }) => html`<div class="sides"><${Facts} side=${data.old} label="Before" /><${Facts} side=${data.new} label="After" /></div>`;

/** @param {{data: Difference}} props */
export function Links({ data }) {
  const one = (/** @type {Side} */ side, /** @type {string} */ label, /** @type {string} */ name, /** @type {string} */ sign) => side.exists &&
    html`<div class=${"target " + name}><span class="sign" aria-hidden="true">${sign}</span><span class="hidden">${label}</span>${
      side.type === "symlink" ? html`<code>→ ${spelled(side.target)}</code>` : named(side)}</div>`;
  const same = data.old.target === data.new.target && data.old.type === data.new.type;
  return html`<div class="targets">${same ? one(data.new, "unchanged", "", " ") : [one(data.old, "removed", "removed", "-"),
    one(data.new, "added", "added", "+")]}</div>`;
}

const WAYS = ["beside", "swipe", "onion"];
const WAY_NAMES = /** @type {Record<string, string>} */ ({ beside: "Side by side", swipe: "Swipe", onion: "Onion skin" });

/** @param {{place: import("./source.js").Place, data: Difference}} props */
export function Images({ place, data }) {
  const two = Boolean(data.old.image && data.new.image);
  const [way, setWay] = useState("beside");
  const [at, setAt] = useState(50);
  const source = (/** @type {"old" | "new"} */ side) => blob(place, side);
  if (!two || way === "beside") {
    return html`<${Ways} two=${two} way=${way} setWay=${setWay} /><div class="sides">
      <${Picture} side=${data.old} label="Before" source=${source("old")} /><${Picture} side=${data.new} label="After" source=${source("new")} />
    </div>`;
  }
  const style = way === "swipe" ? { clipPath: `inset(0 0 0 ${at}%)` } : { opacity: String(at / 100) };
  return html`<${Ways} two way=${way} setWay=${setWay} />
    <div class="overlaid"><img src=${source("old")} alt="before" /><img src=${source("new")} alt="after" style=${style} /></div>
    <label class="slider">${way === "swipe" ? "Before ↔ after" : "How much of the new one"}
      <input type="range" min="0" max="100" value=${at} onInput=${(/** @type {any} */ event) => setAt(Number(event.currentTarget.value))} /></label>`;
}

/** @param {{two: boolean, way: string, setWay: (way: string) => void}} props */
const Ways = ({ two, way, setWay }) => two && html`<div class="segments" role="group" aria-label="How images are compared">${WAYS.map((one) =>
  html`<button type="button" key=${one} aria-pressed=${way === one ? "true" : "false"} onClick=${() => setWay(one)}>${WAY_NAMES[one]}</button>`)}</div>`;

/** @param {HTMLImageElement} image */
const pixels = ({ naturalWidth: wide, naturalHeight: high }) => (wide ? `${wide} × ${high} pixels` : "no size of its own");

/** @param {{side: Side, label: string, source: string}} props */
function Picture({ side, label, source }) {
  const [told, setTold] = useState("");
  if (!side.exists) return html`<${Facts} side=${side} label=${label} />`;
  if (!side.image) return html`<div><h3>${label}</h3><p>${named(side)}, ${size(side.size)}: no image that can be shown</p></div>`;
  return html`<figure><h3>${label}</h3>
    <img src=${source} alt=${`${label}: ${told || "the image"}`} onError=${() => setTold("it cannot be shown as an image")}
      onLoad=${(/** @type {any} */ event) => setTold(pixels(event.currentTarget))} />
    <figcaption>${told && told + ", "}${size(side.size)}</figcaption></figure>`;
}
