// Syntax colours, made in a worker: highlight.js reads text of a fork, so it runs outside of this thread and with a
// time limit. The answer consists of numbers and names out of a list. Without it, text is shown without colours.
import { useEffect, useState } from "./html.js";
import { text } from "./source.js";

const LIMIT = 1000; // milliseconds for one file
const MOST_BYTES = 512 * 1024;
const LONGEST = 2000; // characters of a line
const MOST_LINES = 20_000;
const PAGE = 5000; // lines that are asked for at once

/** @typedef {import("./segments.js").Token} Token */
/** @typedef {{old: Token[][], new: Token[][]}} Colours by line, from 0 */

const ADDRESS = new URL("colour.worker.js", import.meta.url).href;
/** The page creates no scripts but its own worker: other URLs are refused (Trusted Types, W3C). */
const trusted = /** @type {any} */ (globalThis).trustedTypes?.createPolicy("worker", {
  createScriptURL: (/** @type {string} */ address) => {
    if (address !== ADDRESS) throw new TypeError("that is not the worker");
    return address;
  },
});
const start = () => new Worker(trusted ? trusted.createScriptURL(ADDRESS) : ADDRESS, { type: "module" });

/**
 * @param {import("./source.js").Place} place
 * @param {{language: string, kind: string, old: any, new: any} | undefined} data
 * @returns {Colours | null}
 */
export function useColours(place, data) {
  const [found, setFound] = useState(/** @type {{data: any, colours: Colours} | null} */ (null));
  useEffect(() => {
    if (!data?.language || data.kind !== "text") return;
    const aborter = new AbortController();
    coloured(place, data, aborter.signal).then(
      (colours) => colours && !aborter.signal.aborted && setFound({ data, colours }),
      () => {}, // uncoloured
    );
    return () => aborter.abort();
  }, [data]);
  return found && found.data === data ? found.colours : null;
}

/**
 * @param {import("./source.js").Place} place @param {any} data @param {AbortSignal} signal
 * @returns {Promise<Colours | null>}
 */
async function coloured(place, data, signal) {
  const sides = await Promise.all(/** @type {const} */ (["old", "new"]).map((side) => allLines(place, side, data[side])));
  if (signal.aborted || sides.every((lines) => lines === null)) return null;
  const worker = start();
  try {
    await answer(worker, LIMIT * 10, signal); // "ready": loading does not count
    const found = [];
    for (const lines of sides) {
      if (lines) worker.postMessage({ language: data.language, text: lines.join("\n") });
      found.push(lines ? await answer(worker, LIMIT, signal) : []);
    }
    return { old: found[0], new: found[1] };
  } finally {
    worker.terminate();
  }
}

/** @param {Worker} worker @param {number} limit @param {AbortSignal} signal @returns {Promise<any>} */
function answer(worker, limit, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error("took too long")), limit);
    signal.addEventListener("abort", reject, { once: true });
    worker.onerror = reject;
    worker.onmessage = ({ data }) => {
      clearTimeout(timer);
      resolve(data);
    };
  });
}

/**
 * All lines of a side; null: there is no text, or it is too long.
 * @param {import("./source.js").Place} place @param {"old" | "new"} side @param {any} facts
 */
async function allLines(place, side, facts) {
  if (!facts.exists || facts.size > MOST_BYTES || facts.lines > MOST_LINES || facts.type !== "file") return null;
  /** @type {string[]} */
  const found = [];
  for (let total = 1; found.length < total; ) {
    const page = await text(place, side, found.length + 1, PAGE);
    total = Math.min(page.total, MOST_LINES);
    if (!page.lines.length) break;
    for (const line of page.lines) {
      if (line[7] || line[3].length > LONGEST) return null;
      found.push(line[3]);
    }
  }
  return found;
}
