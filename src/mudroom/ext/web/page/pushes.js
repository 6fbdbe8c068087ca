// The pushes, publishes and requests of a fork that wait for an apply: each can be left out.
import { html, useState } from "./html.js";
import { counted } from "./plural.js";

/**
 * @typedef {{ref: string, verb: string, commits: {id: string, subject: string}[], lines: [number, number] | null, flags: string[]}} PushedRef
 * @typedef {{name: string, label: string, remote: string, state: string, why: string, refs: PushedRef[], details: string[]}} Push
 */

/** The pushes that are to be sent; those not left out. @param {Push[]} pushes @returns {[Push[], Set<string>, (name: string) => void]} */
export function useSent(pushes) {
  const [left, setLeft] = useState(/** @type {Set<string>} */ (new Set()));
  const flip = (/** @type {string} */ name) => setLeft((now) => {
    const next = new Set(now);
    if (!next.delete(name)) next.add(name);
    return next;
  });
  return [pushes.filter((one) => !left.has(one.name)), left, flip];
}

/** What is pushed where, for the question before an apply. @param {Push[]} sent */
export const destinations = (sent) => sent.flatMap((one) => one.refs.map((ref) => `${ref.ref} to ${one.remote}${ref.flags.length ? ` (${ref.flags.join(", ")})` : ""}`));

/** @param {{pushes: Push[], left: Set<string>, flip: (name: string) => void}} props */
export function Pushes({ pushes, left, flip }) {
  if (!pushes.length) return null;
  return html`<section class="panel pushes" aria-label="Effects that wait">
    <p class="panel-head">${counted(pushes.length, "effect waits", "effects wait")}: sent with your credential, after the files have been applied</p>
    ${pushes.map((one) => html`<div class="push" key=${one.name}>
      <label class="check"><input type="checkbox" checked=${!left.has(one.name)} aria-label=${`Send ${one.label}: ${destinations([one]).join(", ")}`} onChange=${() => flip(one.name)} />
        <span class="name">${one.label} <span class="dim">to</span> ${one.remote}</span>${one.state !== "held" && html`<span class="tag warn">${one.state}</span>`}</label>
      ${one.why && html`<p class="name">${one.why}</p>`}
      ${one.refs.map((ref) => html`<${Ref} key=${ref.ref} pushed=${ref} />`)}
      ${one.details.length > 0 && html`<details><summary>${counted(one.details.length, "line")}</summary><ul>${one.details.map((line, at) => html`<li class="name" key=${at}>${line}</li>`)}</ul></details>`}</div>`)}
  </section>`;
}

/** @param {{pushed: PushedRef}} props */
function Ref({ pushed: { ref, verb, commits, lines, flags } }) {
  const head = html`<span class="name">${ref}</span> ${verb !== "moved" && html`<span class="tag">${verb}</span>`}${flags.map((flag) => html`<span class="tag bad" key=${flag}>${flag}</span>`)}
    ${lines && html` <span class="plus">+${lines[0].toLocaleString("en")}</span> <span class="minus">−${lines[1].toLocaleString("en")}</span>`}`;
  if (!commits.length) return html`<p>${head}</p>`;
  return html`<details><summary>${head} <span class="count">${counted(commits.length, "commit")}</span></summary>
    <ul>${commits.map((one) => html`<li class="name" key=${one.id}><span class="dim">${one.id.slice(0, 10)}</span> ${one.subject}</li>`)}</ul></details>`;
}
