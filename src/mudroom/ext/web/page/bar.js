// The bar below the files: apply the choice, show progress and outcome.
import { act, isOfPush } from "./applies.js";
import { atFork, finished, post } from "./api.js";
import { spelled } from "./code.js";
import { confirmed } from "./dialog.js";
import { discard } from "./fork.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { Committed, obstacle, OneCommitChoice, useOneCommit } from "./onecommit.js";
import { counted as countOf, repositories, repositoryOf, request } from "./picked.js";
import { counted } from "./plural.js";
import { destinations } from "./pushes.js";
import { toFork, toProject } from "./route.js";
import { amount, fates } from "./telling.js";
import { rootOf } from "./tree.js";

const NAMED = 8; // files that are named before an apply

/** @param {string[]} names */
function some(names) {
  const more = names.length > NAMED ? ` and ${names.length - NAMED} more` : "";
  return html`<span class="name">${names.slice(0, NAMED).map((one, at) => [at ? ", " : "", spelled(one)])}</span>${more}`;
}

/** Warnings before an apply. @param {any[]} rows @param {import("./picked.js").Picked} picked @param {any} standing @param {import("./tree.js").Root[]} roots */
function warnings(rows, picked, standing, roots) {
  const chosen = rows.filter((row) => picked.has(row.id));
  const flagged = (/** @type {string} */ flag) => chosen.filter((row) => row.flags.includes(flag)).map((row) => row.path);
  const left = rows.filter((row) => row.flags.includes("protected") && !picked.has(row.id)).map((row) => row.path);
  const away = rows.filter((row) => !picked.has(row.id)).map(repositoryOf);
  const inside = (/** @type {import("./tree.js").Root} */ one) => chosen.filter((row) => rootOf(row, roots) === one).map((row) => row.path.slice(one.path.length + 1));
  return /** @type {[string, string[], string][]} */ ([
    ...roots.map((one) => [`Changes in ${one.label}`, inside(one), "warn"]),
    ["Runs by itself later", flagged("executes-later"), "bad"],
    ["Changes what later commands do on this machine", flagged("protected"), "bad"],
    ["Links that lead out of the project", flagged("leads-outside"), "bad"],
    ["Lands with fewer permissions than the fork has", flagged("reduced-mode"), "warn"],
    ["Secrets", flagged("secret"), "warn"],
    ...fates(rows, picked, standing?.drifted ?? [], standing?.known ?? null),
    ["The repository, with what was committed", repositories(rows, picked), "warn"],
    ["Left out unless you choose it by name", [...new Set(away.filter(Boolean)), ...left], ""],
  ]).filter(([, names]) => names.length);
}

/** Whether changes were applied. @param {any} job */
const isLanded = (job) => Boolean(job.landed && job.landed.state !== "unverified");

/**
 * @param {{project: string, fork: any, name: string, changes: any, picked: import("./picked.js").Picked, sent: import("./pushes.js").Push[], standing: any,
 *   isRepository: boolean, reload: (anew: boolean) => void, started: (working: boolean) => void, applied: () => void, keys: {apply: () => void}}} props
 */
export function Bar({ project, fork, name, changes, picked, sent, standing, isRepository, reload, started, applied, keys }) {
  const [job, setJob] = useState(/** @type {any} */ (null));
  const [how, setHow] = useState({ backups: false, markers: false });
  const [commit, setCommit, forgetCommit] = useOneCommit(project, name, changes.created);
  const total = changes.total;
  const count = countOf(changes.rows, picked);
  const commits = isRepository && commit.wanted && count > 0;
  const withRepository = repositories(changes.rows, picked).length > 0;
  const why = changes.in_use ? "This is a look, not a review." : commits ? obstacle(commit, withRepository) : "";
  const pushed = sent.length ? counted(sent.length, "effect", "effects") : "";
  const label = count || !pushed ? `Apply ${amount(changes.rows, picked, total, standing?.known ?? null)}${commits ? " and commit" : ""}${pushed && `, send ${pushed}`}` : `Send ${pushed}`;
  const nothing = !count && !sent.length;
  /** @param {boolean} [byKey] by a key, which may have been pressed by mistake: ask first */
  const apply = async (byKey = false) => {
    if (nothing || why || job?.state === "running") return;
    const found = warnings(changes.rows, picked, standing, changes.roots);
    if (found.length || sent.length || byKey) {
      const text = !found.length && !sent.length ? html`<p>The chosen changes are applied to the project.</p>` : html`<dl class="warnings">${sent.length > 0 && html`<div><dt><span class="tag warn">Sent, as you</span></dt>${destinations(sent).map((line) => html`<dd class="name" key=${line}>${line}</dd>`)}</div>`}${found.map(([label, names, mark]) => html`<div key=${label}><dt><span class=${"tag " + mark}>${label}</span></dt><dd>${some(names)}</dd></div>`)}</dl>`;
      if (!(await confirmed({ title: label + "?", text, action: "Apply" }))) return;
    }
    started(true);
    setJob({ state: "running", phase: "begins" });
    try {
      const first = await post(atFork(project, name) + "/apply", { reviewed: changes.fingerprint, files: count ? request(changes.rows, picked, total) : [], git: withRepository, pushes: sent.map((one) => one.name), ...(commits ? { commit: commit.message } : how) });
      const last = await finished(first, setJob);
      if (isLanded(last)) applied();
      if (last.landed?.commit) forgetCommit();
      setJob(last);
    } catch (/** @type {any} */ error) {
      setJob({ state: "failed", problem: { error: error.message, hint: error.hint, code: error.code } });
    }
  };
  keys.apply = () => void apply(true);
  const close = () => {
    const anew = isLanded(job);
    setJob(null);
    started(false);
    reload(anew);
  };
  if (job) return html`<${Course} job=${job} project=${project} name=${name} close=${close} />`;
  return html`<div class="bar">
    ${fork && html`<button type="button" class="danger" onClick=${async () => (await discard(project, { ...fork, summary: changes.summary, fingerprint: changes.fingerprint })) && (applied(), (location.hash = toProject(project)))}>Discard</button>`}
    ${total > 0 && nothing && html`<span class="dim">Nothing is chosen.</span>`}
    ${total > 0 && count > 0 && why && html`<span class="dim" role="status">${why}</span>`}
    ${total > 0 && html`<details class="how"><summary>How</summary><div class="panel">
      ${/** @type {[keyof typeof how, string][]} */ ([["backups", "Leave what is replaced beside it, as NAME.bak"], ["markers", "Write conflict markers into files that conflict"]]).map(([key, label]) => html`
        <label class="check" key=${key}><input type="checkbox" checked=${how[key] && !commits} disabled=${commits} onChange=${() => setHow({ ...how, [key]: !how[key] })} /><span>${label}</span></label>`)}</div></details>`}
    ${total > 0 && isRepository && html`<${OneCommitChoice} commit=${commit} set=${setCommit} />`}
    <span class="grow"></span>
    ${(total > 0 || sent.length > 0) && html`<button type="button" class="primary" disabled=${nothing || Boolean(why)} onClick=${() => apply()}>${label}</button>`}
  </div>`;
}

/** An apply, from its start to its outcome. @param {{job: any, project: string, name: string, close: () => void}} props */
function Course({ job, project, name, close }) {
  const element = useRef(/** @type {HTMLElement | null} */ (null));
  const ended = job.state !== "running";
  useEffect(() => void (ended && element.current?.focus()), [ended]);
  return html`<section class="course" ref=${element} tabindex="-1" aria-label="Applying" aria-busy=${String(!ended)}>
    <div role="status">${ended ? html`<${Outcome} job=${job} project=${project} name=${name} close=${close} />` : html`<p>Applying: ${job.phase || "…"}${job.total > 0 && html` <span class="count">${job.done.toLocaleString("en")} of ${job.total.toLocaleString("en")}</span>`}</p>`}</div>
    ${!ended && html`<progress aria-label="Progress" value=${job.total ? job.done : undefined} max=${job.total || undefined}></progress>`}
    ${job.output && html`<${Output} text=${job.output} open=${!ended || job.landed?.state === "unverified"} />`}
  </section>`;
}

/** @param {{text: string, open: boolean}} props */
function Output({ text, open }) {
  const element = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (element.current) element.current.scrollTop = element.current.scrollHeight;
  }, [text]);
  return html`<details open=${open}><summary>What the verify command says</summary>
    <pre ref=${element} tabindex="0" role="log" aria-label="Output of the verify command">${text}</pre></details>`;
}

/** @type {Record<string, string>} */
const SAID = { moved: "The fork has changed since you looked.", "not-found": "The fork is gone." };

/** Of a request whose outcome is unknown. */
const UNSURE = new Set(["gone", "lost"]);

/** @param {{job: any, project: string, name: string, close: () => void}} props */
function Outcome({ job, project, name, close }) {
  const [turned, setTurned] = useState(/** @type {any} */ (null)); // the outcome of an undo or a redo
  const [undone, setUndone] = useState(false);
  const [busy, setBusy] = useState(false);
  if (job.problem) {
    const said = UNSURE.has(job.problem.code) ? "It is not known whether anything was applied." : job.problem.code === "recovered" ? "" : "Nothing was applied.";
    return html`<div class="banner bad">${said && html`<strong>${said}</strong>`} <span class="name">${SAID[job.problem.code] ?? [job.problem.error, job.problem.hint].filter(Boolean).join(": ")}</span>
      <span class="grow"></span>${job.problem.code === "busy" && html`<a class="button" href=${toFork(project, name, "watch")}>Watch</a>`}<button type="button" onClick=${close}>${job.problem.code === "moved" ? "Reload" : "Close"}</button></div>`;
  }
  const { state, conflicts, merged, kept, withheld, remarks, undo, remaining } = job.landed;
  if (state === "unverified") {
    return html`<div class="banner bad"><strong>Nothing was applied: the verify command failed.</strong> The project is as it was.
      <span class="grow"></span><button type="button" onClick=${close}>Close</button></div>`;
  }
  const turn = async () => {
    setBusy(true);
    const landed = await act(project, undone ? "redo" : "undo", undo);
    if (landed) (setUndone(!undone), setTurned(landed));
    setBusy(false);
  };
  return html`<div class=${"banner " + (conflicts.length || job.landed.commit_problem || (turned ?? job.landed).pushes_left ? "warn" : "good")}>
    <strong>${undone ? "Applied, and taken back." : `Applied: ${job.landed.summary}.`}</strong>
    ${!undone && html`<${Committed} landed=${job.landed} some=${some} />`}
    ${merged.length > 0 && html`<span>Merged with what the project had changed: ${some(merged)}.</span>`}
    ${kept.length > 0 && html`<span>The project's was kept: ${some(kept)}.</span>`}
    ${conflicts.length > 0 && html`<span>${counted(conflicts.length, "conflict")} left: ${some(conflicts.map((/** @type {any} */ one) => one.path))}. <a href=${toFork(project, name, "conflicts")}>Decide</a></span>`}
    ${withheld.length > 0 && html`<span>Not applied, protected: ${some(withheld)}.</span>`}
    ${(turned ? turned.remarks.filter(isOfPush) : remarks).map((/** @type {any} */ one) => html`<span class=${"name" + (isOfPush(one) ? " said" : "")}>${one.path} ${one.text}</span>`)}
    <span class="grow"></span>
    ${undo && html`<button type="button" disabled=${busy} onClick=${turn}>${undone ? "Redo" : "Undo"}</button>`}
    ${remaining > 0 || conflicts.length > 0 ? html`<button type="button" onClick=${close}>Go on</button>` : html`<a class="button" href=${toProject(project)}>To the project</a>`}
  </div>`;
}
