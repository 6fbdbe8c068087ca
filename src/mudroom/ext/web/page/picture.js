// An image before and after: side by side, or one over the other.
//
// 1. An image with very few pixels is enlarged, with a note.
// 2. An image with very many pixels is drawn only on request: a file of some kilobytes may need gigabytes, and the file
//    may be an agent's. An <img> that is not displayed is not decoded: seen in Chromium 156 with 144 million pixels,
//    which took 50 MB while they were hidden and 800 MB when they were shown.
import { html, useState } from "./html.js";
import { Facts, named } from "./sides.js";
import { blob } from "./source.js";
import { number, size } from "./wording.js";

/** @typedef {import("./sides.js").Side} Side */
/** @typedef {{wide: number, high: number}} Extent in pixels; both 0: it has no size of its own */

const FEW = 64; // pixels: smaller images are enlarged up to that
const NOTHING = { wide: 0, high: 0 };
const MANY = 40_000_000; // pixels of an image that is drawn at once

/** How many times larger than it is. @param {Extent} extent */
export const enlarged = ({ wide, high }) => (wide && high ? Math.max(1, Math.floor(FEW / Math.max(wide, high))) : 1);

/** @param {Extent} extent */
export const tooMany = ({ wide, high }) => wide * high > MANY;

/** @param {Extent} extent */
export function told(extent) {
  const { wide, high } = extent;
  if (!wide) return "no size of its own";
  const times = enlarged(extent);
  return `${number(wide)} × ${number(high)} ${wide * high === 1 ? "pixel" : "pixels"}${times > 1 ? `, ${times} times as large here` : ""}`;
}

/** @param {any} event @returns {Extent} */
const extentOf = ({ currentTarget: { naturalWidth: wide, naturalHeight: high } }) => ({ wide, high });

/** @param {Extent} extent */
const style = (extent) => (enlarged(extent) > 1 ? { width: extent.wide * enlarged(extent) + "px", imageRendering: "pixelated" } : {});

const WAYS = ["beside", "swipe", "onion"];
const WAY_NAMES = /** @type {Record<string, string>} */ ({ beside: "Side by side", swipe: "Swipe", onion: "Onion skin" });

/** @param {{place: import("./source.js").Place, data: import("./sides.js").Difference}} props */
export function Images({ place, data }) {
  const two = Boolean(data.old.image && data.new.image);
  const [way, setWay] = useState("beside");
  const ways = two && html`<div class="segments" role="group" aria-label="How images are compared">${WAYS.map((one) =>
    html`<button type="button" key=${one} aria-pressed=${way === one ? "true" : "false"} onClick=${() => setWay(one)}>${WAY_NAMES[one]}</button>`)}</div>`;
  if (two && way !== "beside") return html`${ways}<${Overlaid} place=${place} swipe=${way === "swipe"} />`;
  return html`${ways}<div class="sides">
    <${Picture} side=${data.old} label="Before" source=${blob(place, "old")} /><${Picture} side=${data.new} label="After" source=${blob(place, "new")} /></div>`;
}

/** @param {{side: Side, label: string, source: string}} props */
function Picture({ side, label, source }) {
  const [extent, setExtent] = useState(/** @type {Extent | null} */ (null));
  const [broken, setBroken] = useState(false);
  const [wanted, setWanted] = useState(false);
  if (!side.exists) return html`<${Facts} side=${side} label=${label} />`;
  if (!side.image) return html`<div><h3>${label}</h3><p>${named(side)}, ${size(side.size)}: no image that can be shown</p></div>`;
  const words = broken ? "it cannot be shown as an image" : extent ? told(extent) : "";
  const held = extent !== null && tooMany(extent) && !wanted;
  return html`<figure><h3>${label}</h3>
    <img src=${source} hidden=${!extent || held || broken} style=${extent ? style(extent) : {}} alt=${`${label}: ${words || "the image"}`}
      onError=${() => setBroken(true)} onLoad=${(/** @type {any} */ event) => setExtent(extentOf(event))} />
    ${held && html`<p><button type="button" onClick=${() => setWanted(true)}>Draw it</button> It is not drawn by itself: it has very many pixels.</p>`}
    <figcaption>${words && words + ", "}${size(side.size)}</figcaption></figure>`;
}

/** @param {{place: import("./source.js").Place, swipe: boolean}} props */
function Overlaid({ place, swipe }) {
  const [at, setAt] = useState(50);
  const [extents, setExtents] = useState(/** @type {Record<string, Extent>} */ ({}));
  const [wanted, setWanted] = useState(false);
  const know = (/** @type {string} */ side, /** @type {Extent} */ extent) => setExtents((before) => ({ ...before, [side]: extent }));
  const both = Object.values(extents);
  const held = both.some(tooMany) && !wanted;
  const times = both.length === 2 ? Math.min(...both.map(enlarged)) : 1; // the same for both, to compare them
  const shape = (/** @type {string} */ side) => (times > 1 ? { width: extents[side].wide * times + "px", imageRendering: "pixelated" } : {});
  const over = swipe ? { clipPath: `inset(0 0 0 ${at}%)` } : { opacity: String(at / 100) };
  const one = (/** @type {"old" | "new"} */ side, /** @type {string} */ label, /** @type {any} */ more) => html`<img src=${blob(place, side)} alt=${label}
    hidden=${both.length < 2 || held} style=${{ ...shape(side), ...more }} onError=${() => know(side, NOTHING)} onLoad=${(/** @type {any} */ event) => know(side, extentOf(event))} />`;
  return html`${held && html`<p><button type="button" onClick=${() => setWanted(true)}>Draw them</button> They are not drawn by themselves: they have very many pixels.</p>`}
    <div class="overlaid">${one("old", "before", {})}${one("new", "after", over)}</div>
    <label class="slider">${swipe ? "Before ↔ after" : "How much of the new one"}
      <input type="range" min="0" max="100" value=${at} onInput=${(/** @type {any} */ event) => setAt(Number(event.currentTarget.value))} /></label>`;
}
