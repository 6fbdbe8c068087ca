// The output of one command, as it arrives.
import { get, listen, query } from "./api.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { size } from "./say.js";
import { Screen } from "./screen.js";

const PAUSE = 120; // milliseconds between two requests, however fast it prints
const MATTERS = ["output", "commands", "forks"];
const SHOWN = 1000; // lines that are drawn at first

/**
 * @param {string} project @param {string} path where it is asked for
 * @returns {{streams: {name: string, screen: Screen, before: number}[], ended: boolean, error: any, number: number}}
 */
function useOutput(project, path) {
  const [, redraw] = useState(0);
  const state = useRef(/** @type {any} */ (null));
  if (state.current?.path !== path) state.current = fresh(path);
  useEffect(() => {
    const mine = state.current;
    const aborter = new AbortController();
    let timer = 0;
    let waiting = false;
    let again = false;
    const look = async () => {
      timer = 0;
      waiting = true;
      again = false;
      try {
        const found = await get(path + query({ stamp: mine.stamp }), aborter.signal);
        take(mine, found);
      } catch (error) {
        if (aborter.signal.aborted) return;
        mine.error = error;
      }
      waiting = false;
      mine.number++;
      redraw((before) => before + 1);
      if (again) soon();
    };
    const soon = () => {
      again = true;
      if (!waiting && !timer) timer = window.setTimeout(look, PAUSE);
    };
    look();
    const stop = listen((kind, data) => {
      if (kind === "hello" || kind === "missed") soon();
      else if (kind === "changed" && data.project === project && MATTERS.includes(data.what)) soon();
    });
    return () => {
      clearTimeout(timer);
      aborter.abort();
      stop();
    };
  }, [project, path]);
  return state.current;
}

/** @param {string} path */
const fresh = (path) => ({
  path, stamp: "", ended: false, error: null, number: 0,
  streams: ["stdout", "stderr"].map((name) => ({ name, screen: new Screen(), before: 0 })),
});

/** @param {any} mine @param {any} found */
function take(mine, found) {
  const ends = mine.stamp ? mine.stamp.split("-").map(Number) : null;
  mine.error = null;
  mine.stamp = found.stamp;
  mine.ended = found.ended;
  for (const [at, stream] of mine.streams.entries()) {
    const before = found[stream.name + "_before"];
    if (before !== null) {
      if (!ends) stream.before = before;
      else if (before > ends[at]) stream.screen.gap(`… ${size(before - ends[at])} were too fast to be shown here`);
    }
    if (found[stream.name]) stream.screen.write(found[stream.name]);
  }
}

/** @param {{project: string, path: string}} props */
export function Output({ project, path }) {
  const { streams, ended, error, number } = useOutput(project, path);
  const silent = streams.every(({ screen }) => screen.lines.length === 1 && !screen.lines[0].runs.length);
  return html`<div class="output">
    ${error && html`<p class="problem" role="alert">${error.message}</p>`}
    ${silent && !error && html`<p class="dim">${ended ? "It has printed nothing." : number ? "Nothing is printed yet." : "…"}</p>`}
    ${streams.map((stream) => html`<${Stream} key=${stream.name} ...${stream} number=${number} />`)}</div>`;
}

/** @param {{name: string, screen: Screen, before: number, number: number}} props */
function Stream({ name, screen, before, number }) {
  const element = useRef(/** @type {HTMLPreElement | null} */ (null));
  const follows = useRef(true);
  const [shown, setShown] = useState(SHOWN);
  useLayoutEffect(() => {
    const pre = element.current;
    if (pre && follows.current) pre.scrollTop = pre.scrollHeight;
  }, [number, shown]);
  const { lines, left } = screen;
  if (lines.length === 1 && !lines[0].runs.length) return null;
  const scrolled = () => {
    const pre = element.current;
    if (pre) follows.current = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 24;
  };
  const last = lines.length - 1;
  const drawn = lines[last].runs.length ? lines : lines.slice(0, last);
  const hidden = Math.max(0, drawn.length - shown);
  const earlier = [before > 0 && `${size(before)} earlier`, left > 0 && `${left.toLocaleString("en")} lines earlier`].filter(Boolean).join(", ");
  return html`<section class="stream"><p class="dim small">${name}</p>
    <pre ref=${element} class="printed" tabindex="0" role="log" aria-live="off" aria-label=${"Output: " + name} onScroll=${scrolled}>${earlier && html`<span class="dim">… ${earlier}, not kept here${"\n"}</span>`}${hidden > 0 && html`<button type="button" class="quiet" onClick=${() => setShown(shown + SHOWN)}>${hidden.toLocaleString("en")} lines above</button>${"\n"}`}${drawn.slice(hidden).map((line) => html`<${Printed} key=${line.id} line=${line} />`)}</pre></section>`;
}

/** @param {{line: import("./screen.js").Line}} props */
export function Printed({ line }) {
  return html`<span class="printed-line">${line.runs.map((run, at) => (run.style ? html`<span key=${at} class=${run.style}>${run.text}</span>` : run.text))}${"\n"}</span>`;
}
