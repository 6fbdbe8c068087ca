// The result of a conflict: shown with the origin of each line, and edited as a whole once it is decided.
//
// 1. The decided text itself is edited, as the server has it, never its displayed form.
// 2. Line ends stay, and so does the end of the last line: a browser does not show them.
// 3. An edit has the text that it began from. If the result has changed since, its changes are shown, and are reverted
//    only on request.
import { html } from "./html.js";
import { onePiece, split } from "./merge.js";
import { Outcome } from "./panes.js";
import { size } from "./wording.js";

const ROWS = 40; // of the text area
const FROM = /** @type {Record<string, import("./merge.js").Piece["from"]>} */ ({ ours: "ours", theirs: "theirs" });

/** @typedef {{text: string, begun: string} | null} Edited all of the result, as somebody has it, and as it was then; null: it is not edited */

/**
 * The result.
 * @param {{data: any, pieces: import("./merge.js").Piece[] | null, settled: boolean, edited: Edited, edit: (edited: Edited) => void}} props
 * `pieces`: place by place; null: it was decided in another way. `settled`: it is the stored decision
 */
export function Result({ data, pieces, settled, edited, edit }) {
  const { result, take } = data;
  const shown = () => (pieces || result.lines.length ? html`<${Outcome} pieces=${pieces ?? onePiece(result, FROM[take] ?? "same")} />` : html`<p class="pad">${size(result.size)}, which cannot be shown as text.</p>`);
  if (edited) return html`<${EditedResult} result=${result} edited=${edited} edit=${edit} />
    ${isBehind(result, edited) && html`<details open class="panel"><summary class="panel-head">The result, as it is decided now</summary>${shown()}</details>`}`;
  if (settled ? !result : !pieces) return settled && take === "delete" ? html`<p class="dim">The file will be gone.</p>` : null;
  const begin = () => (edit({ text: plain(result), begun: plain(result) }), requestAnimationFrame(() => /** @type {HTMLElement | null} */ (document.querySelector(".whole-edit textarea"))?.focus()));
  return html`<details open class="panel"><summary class="panel-head">${settled ? "The result, as it is decided" : "The result"}</summary>
    ${shown()}
    ${!settled && pieces?.every((piece) => piece.lines) && html`<p class="dim small pad">Once it is saved, it can be edited as a whole, too.</p>`}
    ${settled && html`<div class="row pad">${result.text !== null ? html`<button type="button" class="small" onClick=${begin}>Edit the whole result</button>`
      : html`<span class="dim small">It is too long, or holds what a browser would change: it cannot be edited here as a whole.</span>`}</div>`}
  </details>`;
}

/** The text as a text area has it. @param {import("./merge.js").Result} result */
const plain = ({ text }) => (text ?? "").replaceAll("\r\n", "\n");

/** The request for an edit. @param {NonNullable<Edited>} edited */
export const editedLines = ({ text, begun }) => ({ lines: split(text), begun: split(begun) });

/** Whether the result has changed since the edit began. @param {import("./merge.js").Result | null} result @param {NonNullable<Edited>} edited */
const isBehind = (result, { begun }) => Boolean(result && plain(result) !== begun);

/** @param {{result: import("./merge.js").Result | null, edited: NonNullable<Edited>, edit: (edited: Edited) => void}} props */
function EditedResult({ result, edited, edit }) {
  const text = result?.text ?? null;
  return html`<section class="panel whole-edit" aria-label="The whole result, edited"><label class="field"><span>The whole result, edited</span>
      <textarea aria-label="The whole result" spellcheck=${false} autocomplete="off" rows=${Math.min(ROWS, Math.max(4, edited.text.split("\n").length + 1))} value=${edited.text}
        onInput=${(/** @type {any} */ event) => edit({ ...edited, text: event.currentTarget.value })}></textarea></label>
    ${isBehind(result, edited) && html`<p class="banner warn" role="status">The result has changed since you began: it is shown below. The changes since are merged with your edit when you save it.</p>`}
    <div class="row">${result?.unseen && html`<span class="tag warn">It holds characters that are not visible here.</span>`}
      ${text?.includes("\r\n") && html`<span class="tag">Lines end with CR LF, as before.</span>`}
      ${text && !text.endsWith("\n") && html`<span class="tag">It ends without a newline, as before.</span>`}
      ${text === null && html`<span class="tag warn">The conflict is no longer decided: decide its places, then this can be saved.</span>`}
      <button type="button" class="small" onClick=${() => edit(null)}>Drop this edit</button></div></section>`;
}
