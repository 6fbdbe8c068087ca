// The pushes, publishes and requests of a fork that wait for an apply: each can be left out.
import { atFork, remove } from "./api.js";
import { Opened } from "./commits.js";
import { confirmed } from "./dialog.js";
import { html, useState } from "./html.js";
import { counted } from "./plural.js";
import { complain } from "./toast.js";

/**
 * @typedef {{ref: string, verb: string, commits: {id: string, subject: string}[], lines: [number, number] | null, flags: string[]}} PushedRef
 * @typedef {{name: string, label: string, kind: string, remote: string, state: string, why: string, refs: PushedRef[], needs: string[], details: string[]}} Push
 */

/** The pushes that are to be sent; those not left out. One is left out with those that need it, and sent with those that it needs. @param {Push[]} pushes @returns {[Push[], Set<string>, (name: string) => void]} */
export function useSent(pushes) {
  const [left, setLeft] = useState(/** @type {Set<string>} */ (new Set()));
  const flip = (/** @type {string} */ name) => setLeft((now) => {
    const one = pushes.find((push) => push.name === name);
    const others = now.has(name) ? pushes.filter((push) => one?.needs.includes(push.label)) : pushes.filter((push) => one && push.needs.includes(one.label));
    const names = [name, ...others.map((push) => push.name)];
    return now.has(name) ? new Set([...now].filter((left) => !names.includes(left))) : new Set([...now, ...names]);
  });
  return [pushes.filter((one) => !left.has(one.name)), left, flip];
}

/** What is pushed where, for the question before an apply. @param {Push[]} sent */
export const destinations = (sent) => sent.flatMap((one) => one.refs.map((ref) => `${ref.ref} to ${one.remote}${ref.flags.length ? ` (${ref.flags.join(", ")})` : ""}`));

/** Ask, and drop a push. @param {string} project @param {string} fork @param {Push} one @param {Push[]} pushes @returns {Promise<boolean>} whether it is gone */
async function drop(project, fork, one, pushes) {
  const after = pushes.filter((push) => push.needs.includes(one.label)).map((push) => push.label);
  const text = html`<ul>${destinations([one]).map((line) => html`<li class="name" key=${line}>${line}</li>`)}</ul>
    <p>It is thrown away unsent, and the fork stays.${after.length > 0 && html` The server may refuse what was made after it: <span class="name">${after.join(", ")}</span>.`}</p><p>This cannot be undone.</p>`;
  if (!(await confirmed({ title: `Drop ${one.label}?`, text, action: "Drop", danger: true }))) return false;
  return remove(`${atFork(project, fork)}/effects/${encodeURIComponent(one.name)}`).then(() => true, (error) => (complain(error), false));
}

/** @param {{project: string, fork: string, pushes: Push[], left: Set<string>, flip: (name: string) => void, dropped: () => void, working: boolean}} props */
export function Pushes({ project, fork, pushes, left, flip, dropped, working }) {
  if (!pushes.length) return null;
  return html`<section class="panel pushes" aria-label="Effects that wait">
    <p class="panel-head">${counted(pushes.length, "effect waits", "effects wait")}: sent with your credential, after the files have been applied</p>
    ${pushes.map((one) => html`<div class="push" key=${one.name}>
      <div class="spread"><label class="check"><input type="checkbox" checked=${!left.has(one.name)} aria-label=${`Send ${one.label}: ${destinations([one]).join(", ")}`} onChange=${() => flip(one.name)} />
        <span class="name">${one.label} <span class="dim">to</span> ${one.remote}</span>${one.state !== "held" && html`<span class="tag warn">${one.state}</span>`}</label>
        <button type="button" class="danger small" disabled=${working} onClick=${async () => (await drop(project, fork, one, pushes)) && dropped()}>Drop<span class="hidden"> ${one.label}</span></button></div>
      ${one.needs.length > 0 && html`<p class="dim">after <span class="name">${one.needs.join(", ")}</span></p>`}
      ${one.why && html`<p class="name">${one.why}</p>`}
      ${one.refs.map((ref) => html`<${Ref} key=${ref.ref} project=${project} fork=${fork} kind=${one.kind} pushed=${ref} />`)}
      ${one.details.length > 0 && html`<details><summary>${counted(one.details.length, one.kind === "publish" ? "file" : "line")}</summary><ul>${one.details.map((line, at) => html`<li class="name" key=${at}>${line}</li>`)}</ul></details>`}</div>`)}
  </section>`;
}

/** Flags that are no warning. */
const PLAIN = /^([\d,]+ bytes|compared with .*|nothing is there.*|there already|gone already)$/;

/** @param {{project: string, fork: string, kind: string, pushed: PushedRef}} props */
function Ref({ project, fork, kind, pushed: { ref, verb, commits, lines, flags } }) {
  const head = html`<span class="name">${ref}</span> ${kind === "push" && verb !== "moved" && html`<span class="tag">${verb}</span>`}${flags.map((flag) => html` <span class=${"tag" + (PLAIN.test(flag) ? "" : " bad")} key=${flag}>${flag}</span>`)}
    ${lines && html` <span class="plus">+${lines[0].toLocaleString("en")}</span> <span class="minus">−${lines[1].toLocaleString("en")}</span>`}`;
  if (!commits.length) return html`<p>${head}</p>`;
  return html`<details><summary>${head} <span class="count">${counted(commits.length, "commit")}</span></summary>
    <ul>${commits.map((one) => html`<${PushedCommit} key=${one.id} project=${project} fork=${fork} one=${one} isThere=${Boolean(lines)} />`)}</ul></details>`;
}

/** @param {{project: string, fork: string, one: {id: string, subject: string}, isThere: boolean}} props `isThere`: in the fork's repository, which has its differences */
function PushedCommit({ project, fork, one, isThere }) {
  const [open, setOpen] = useState(false);
  const head = html`<span class="dim">${one.id.slice(0, 10)}</span> ${one.subject}`;
  return html`<li class="name">${isThere ? html`<button type="button" class="quiet" aria-expanded=${String(open)} onClick=${() => setOpen(!open)}>${head}</button>` : head}
    ${open && html`<${Opened} project=${project} fork=${fork} one=${one} />`}</li>`;
}
