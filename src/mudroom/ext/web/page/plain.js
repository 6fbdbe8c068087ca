// A file without a comparison: the lines of one side.
import { Lines } from "./difftable.js";
import { html, useEffect, useMemo, useState } from "./html.js";
import { NEW, OLD } from "./rows.js";
import { text } from "./source.js";
import { number } from "./wording.js";

const STEP = 200;
const SIDES = /** @type {const} */ ([["old", "Before"], ["new", "After"]]);

/** @typedef {import("./rows.js").Line} Line */

/** @param {{manner: import("./difftable.js").Manner, data: {old: {exists: boolean}, new: {exists: boolean}}}} props */
export function Plain({ manner, data }) {
  const there = SIDES.filter(([side]) => data[side].exists);
  const [side, setSide] = useState(/** @type {"old" | "new" | ""} */ (""));
  return html`<div class="row"><span class="dim">Its text:</span><span class="segments" role="group" aria-label="Text that is shown">${there.map(([one, label]) => html`<button type="button" key=${one}
    aria-pressed=${side === one ? "true" : "false"} onClick=${() => setSide(side === one ? "" : one)}>${label}</button>`)}</span></div>
    ${side && html`<${Side} key=${side} side=${side} manner=${manner} />`}`;
}

/** @param {{side: "old" | "new", manner: import("./difftable.js").Manner}} props */
function Side({ side, manner }) {
  const [pages, setPages] = useState(/** @type {Line[][]} */ ([]));
  const [total, setTotal] = useState(-1);
  const [whole, setWhole] = useState(true);
  const [problem, setProblem] = useState("");
  const count = pages.reduce((sum, page) => sum + page.length, 0);
  const more = () => {
    text(manner.place, side, count + 1, STEP).then((found) => {
      setTotal(found.lines.length ? found.total : count);
      setWhole(found.whole);
      setPages([...pages, found.lines.map((line) => both(line))]);
      setProblem("");
    }, (error) => setProblem(error.message));
  };
  useEffect(more, []);
  const mine = useMemo(() => ({ ...manner, split: false, colours: null, only: side }), [manner, side]);
  return html`<section class="hunk" aria-label=${`Text ${side === "old" ? "before" : "after"}`}>
    ${pages.map((lines, at) => html`<${Lines} key=${at} lines=${lines} manner=${mine} now=${at === 0} />`)}
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    ${total > count && html`<p class="fold"><button type="button" class="small" onClick=${more}>${number(Math.min(STEP, total - count))} lines more</button>
      <span>${number(count)} of ${whole ? "" : "at least "}${number(total)} lines</span></p>`}
    ${!whole && total <= count && html`<p class="dim" role="status">The rest is not shown: this file is too large to be read to its end.</p>`}
  </section>`;
}

/** The same number for both columns. @param {Line} line @returns {Line} */
const both = (line) => /** @type {Line} */ ([" ", line[OLD] || line[NEW], line[NEW] || line[OLD], ...line.slice(3)]);
