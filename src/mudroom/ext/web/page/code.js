// The text of a line as elements, with a button for the rest of a line that is too long to be sent at once.
import { html, useState } from "./html.js";
import { CUT, ENDS, ODD, returned, TEXT, UNTIL, WORDS } from "./rows.js";
import { nameParts, pieces } from "./segments.js";
import { number } from "./wording.js";

/** @typedef {import("./rows.js").Line} Line */
/** @typedef {import("./segments.js").Token} Token */

/** @param {import("./segments.js").Piece} piece */
function element({ text, kind, word, odd }) {
  const name = [kind && "t-" + kind, word && "word", odd && "odd"].filter(Boolean).join(" ");
  if (odd) return html`<span class=${name} title=${odd} role="img" aria-label=${odd}>${text}</span>`;
  return name ? html`<span class=${name}>${text}</span>` : text;
}

/** @param {string} text @param {[number, number][]} [words] @param {[number, number][]} [odd] @param {readonly Token[]} [tokens] */
export const drawn = (text, words, odd, tokens) => pieces(text, words, odd, tokens).map(element);

/** A path with its invisible characters as chips. @param {string} path as the server writes one */
export const spelled = (path) => nameParts(path).map(element);

/**
 * @param {Line} line @param {boolean} returns whether the CR of a CR LF is shown
 * @param {readonly Token[]} [tokens]
 */
export function code(line, returns, tokens) {
  const text = !returns && returned(line) ? line[TEXT].slice(0, -2) : line[TEXT];
  return html`${drawn(text, line[WORDS], line[ODD], tokens)}${line[ENDS] === false && !line[CUT] ? NO_NEWLINE : null}`;
}
const NO_NEWLINE = html`<span class="note" title="the file ends without a newline">no newline at end of file</span>`;

/**
 * A long line: the part that was sent, and more on request.
 * @param {{line: Line, returns: boolean, tokens?: readonly Token[],
 *   more: (column: number) => Promise<{lines: Line[]}>}} props
 */
export function Long({ line, returns, tokens, more }) {
  const [rest, setRest] = useState(/** @type {Line[]} */ ([]));
  const [state, setState] = useState(/** @type {{busy: boolean, problem: string}} */ ({ busy: false, problem: "" }));
  const last = rest[rest.length - 1] ?? line;
  const ask = () => {
    setState({ busy: true, problem: "" });
    more(last[UNTIL] ?? 0).then(
      ({ lines }) => {
        setRest([...rest, ...lines.slice(0, 1)]);
        setState({ busy: false, problem: lines.length ? "" : "the rest of this line is gone" });
      },
      (error) => setState({ busy: false, problem: error.message }),
    );
  };
  return html`${code(line, returns, tokens)}${rest.map((one) => code(one, returns))}${last[CUT]
    ? html` <button type="button" class="small" disabled=${state.busy} onClick=${ask}>… ${number(last[CUT] ?? 0)} bytes more</button>`
    : null}${state.problem && html` <span class="problem" role="alert">${state.problem}</span>`}`;
}
