// An apply whose files become one commit on the checked-out branch: the choice, with its message, and the outcome.
import { drawn, spelled } from "./code.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { count } from "./say.js";
import { ofTab } from "./store.js";

const LINES = 8; // of the message that are shown at once

/** @typedef {{wanted: boolean, message: string}} OneCommit */

/**
 * The choice, kept as long as this tab is open. A fork of the same name that was made at another time has none.
 * @param {string} project @param {string} fork @param {number} created
 * @returns {[OneCommit, (next: OneCommit) => void, () => void]} the choice; set it; forget it
 */
export function useOneCommit(project, fork, created) {
  const key = `commit.${project}.${fork}`;
  const mark = created + " ";
  const [now, setNow] = useState(() => {
    const stored = ofTab.get(key) ?? "";
    return stored.startsWith(mark) ? { wanted: true, message: stored.slice(mark.length) } : { wanted: false, message: "" };
  });
  const set = (/** @type {OneCommit} */ next) => {
    setNow(next);
    ofTab.set(key, next.wanted ? mark + next.message : "");
  };
  return [now, set, () => void ofTab.set(key, "")];
}

/** Why the commit cannot be made; empty: it can. @param {OneCommit} commit @param {boolean} hasRepository whether a repository is chosen */
export function obstacle({ wanted, message }, hasRepository) {
  if (!wanted) return "";
  if (hasRepository) return "A repository is chosen: it cannot be part of a commit.";
  return message.trim() ? "" : "The commit needs a message.";
}

/** @param {{commit: OneCommit, set: (next: OneCommit) => void}} props */
export function OneCommitChoice({ commit, set }) {
  const field = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const ticked = useRef(false);
  useEffect(() => {
    if (ticked.current && commit.wanted) field.current?.focus();
    ticked.current = false;
  }, [commit.wanted]);
  const toggle = () => {
    ticked.current = true;
    set({ ...commit, wanted: !commit.wanted });
  };
  return html`<label class="check"><input type="checkbox" checked=${commit.wanted} onChange=${toggle} /><span>As one commit</span></label>
    ${commit.wanted && html`<label class="field message"><span>Message of the commit</span>
      <textarea ref=${field} required autocomplete="off" rows=${Math.min(LINES, commit.message.split("\n").length + 1)} value=${commit.message}
        onInput=${(/** @type {any} */ event) => set({ ...commit, message: event.currentTarget.value })}></textarea></label>`}`;
}

/** The outcome. @param {{landed: any, some: (names: string[]) => any}} props */
export function Committed({ landed, some }) {
  const { commit, commit_problem: problem } = landed;
  if (problem) return html`<span class="name">Not committed: ${drawn(problem)}.</span>`;
  if (!commit) return null;
  const { id, branch, files, with_changes: mixed, left_out: left } = commit;
  return html`<span>Committed: <code>${id.slice(0, 10)}</code> on ${branch ? html`<span class="name">${spelled(branch)}</span>` : "a detached HEAD"}, ${count(files, "file")}.</span>
    ${mixed.length > 0 && html`<span>With changes of yours that were not committed: ${some(mixed)}.</span>`}
    ${left.length > 0 && html`<span>Not in the commit, ignored by git or of another repository: ${some(left)}.</span>`}`;
}
