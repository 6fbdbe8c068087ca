// The commits of a fork in its review: a list, and each commit with its message and differences when it is opened.
import { atFork, get, query } from "./api.js";
import { drawn, spelled } from "./code.js";
import { html, useMemo, useState } from "./html.js";
import { Hunk } from "./hunk.js";
import { useLoaded } from "./load.js";
import { returns } from "./rows.js";
import { clock, count, iso } from "./say.js";

/** @type {Record<string, string>} */
const NOT_SHOWN = { binary: "Binary file", large: "Too large to be shown", masked: "A secret: it is not shown", renamed: "Renamed, with the same content" };
/** @type {Record<string, string>} */
const VERBS = { added: "A", modified: "M", deleted: "D", renamed: "R" };

/** Shown if the fork changed the repository, and has commits that the project lacks. @param {{project: string, fork: string, changes: any}} props */
export function Commits({ project, fork, changes }) {
  const touched = useMemo(() => changes.rows.some((/** @type {any} */ row) => row.flags.includes("repository")), [changes.rows]);
  return touched ? html`<${Listed} key=${changes.fingerprint} project=${project} fork=${fork} />` : null;
}

/** @param {{project: string, fork: string}} props */
function Listed({ project, fork }) {
  const { data } = useLoaded(atFork(project, fork) + "/commits");
  if (!data || (!data.total && !data.problem)) return null;
  const branch = data.branch.replace("refs/heads/", "");
  if (data.problem) return html`<p class="banner warn name">The commits of this fork cannot be listed: ${data.problem}</p>`;
  return html`<details class="banner commits"><summary>${count(data.total, "commit")}${branch && html` on <span class="name">${spelled(branch)}</span>`}</summary>
    ${data.total > data.commits.length && html`<p class="dim small">The last ${data.commits.length.toLocaleString("en")} are listed.</p>`}
    <ol aria-label="Commits, oldest first">${data.commits.map((/** @type {any} */ one) => html`<${Commit} key=${one.id} project=${project} fork=${fork} one=${one} />`)}</ol></details>`;
}

/** @param {{project: string, fork: string, one: any}} props */
function Commit({ project, fork, one }) {
  const [open, setOpen] = useState(false);
  return html`<li><button type="button" class="quiet" aria-expanded=${String(open)} onClick=${() => setOpen(!open)}>
      <code class="dim">${one.id.slice(0, 8)}</code><span class="subject">${one.subject ? drawn(one.subject) : html`<span class="dim">no message</span>`}</span>
      ${one.labels.map((/** @type {string} */ label) => html`<span key=${label} class="tag name">${label}</span>`)}
      ${one.parents > 1 && html`<span class="tag">merge</span>`}
      <span class="dim small">${drawn(one.author)}</span><time class="dim small" datetime=${iso(one.time)}>${clock(one.time)}</time></button>
    ${open && html`<${Opened} project=${project} fork=${fork} one=${one} />`}</li>`;
}

/** @param {{project: string, fork: string, one: any}} props */
export function Opened({ project, fork, one }) {
  const path = `${atFork(project, fork)}/commits/${one.id}`;
  const { data, error } = useLoaded(path);
  if (error && !data) return html`<p class="problem" role="alert">${error.message}</p>`;
  if (!data) return html`<p aria-busy="true" class="dim">…</p>`;
  const body = data.message.split("\n").slice(1).join("\n").trim();
  return html`<div class="commit diff">
    ${body && html`<pre class="message" tabindex="0">${body.split("\n").map((/** @type {string} */ line) => [drawn(line), "\n"])}</pre>`}
    ${one.author && data.committer !== one.author && html`<p class="dim small">Committed by ${drawn(data.committer)}</p>`}
    <p class="dim small">${count(data.files.length, "file")}${data.more ? " and more" : ""} <span class="plus">+${data.added.toLocaleString("en")}</span> <span class="minus">−${data.removed.toLocaleString("en")}</span></p>
    ${data.files.map((/** @type {any} */ file) => html`<${File} key=${file.id} path=${path} project=${project} fork=${fork} file=${file} />`)}
  </div>`;
}

/** @param {{path: string, project: string, fork: string, file: any}} props */
function File({ path, project, fork, file }) {
  const [pages, setPages] = useState([file]);
  const [problem, setProblem] = useState("");
  const hunks = useMemo(() => pages.flatMap((page) => page.hunks), [pages]);
  const manner = useMemo(() => ({ place: { project, fork, file: file.id }, split: false, returns: returns(hunks) === "some", colours: null }), [project, fork, file, hunks]);
  const following = pages[pages.length - 1].following;
  const more = () => get(path + query({ file: file.id, first: following || undefined })).then(({ files }) => {
    setPages([...pages, files[0]]);
    setProblem("");
  }, (error) => setProblem(error.message));
  return html`<section aria-label=${file.path}>
    <h2 class="name small">${VERBS[file.change]} ${file.source && html`<span class="dim">${spelled(file.source)} → </span>`}${spelled(file.path)}
      ${file.mode && html` <span class="dim small">${file.mode.join(" → ")}</span>`}</h2>
    ${NOT_SHOWN[file.kind] && html`<p class="dim">${NOT_SHOWN[file.kind]}</p>`}
    ${hunks.map((hunk, at) => html`<${Hunk} key=${at} hunk=${hunk} at=${at} total=${hunks.length} manner=${manner} chosen=${null} />`)}
    ${following !== null && html`<p class="fold"><button type="button" class="small" onClick=${more}>${hunks.length ? "More of this file" : "Show this file"}</button>
      ${problem && html`<span class="problem" role="alert">${problem}</span>`}</p>`}</section>`;
}
