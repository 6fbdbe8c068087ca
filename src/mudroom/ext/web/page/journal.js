// The journal: search, new events, verification.
import { at, finished, post } from "./api.js";
import { html, useEffect, useState } from "./html.js";
import { usePages } from "./pages.js";
import { clock, count, iso } from "./say.js";

const KINDS = [
  ["", "everything"], ["run,background,background_end", "commands"], ["verdict,approval", "verdicts and approvals"], ["flow,net", "network"],
  ["apply,undo,redo,recover", "applies and undos"], ["checkpoint,rollback,fork,discard,rename", "forks and checkpoints"], ["policy", "policy"], ["degrade,gap", "what was missing"],
];
const VERDICTS = [["", "any verdict"], ["deny", "denied"], ["require_approval", "had to be approved"], ["allow_with_checkpoint", "with a checkpoint"], ["allow", "allowed"]];
const SINCE = [["", "at any time"], ["3600000", "in the last hour"], ["86400000", "in the last day"], ["604800000", "in the last week"]];
const GRAVITY = ["", "noticed", "grave"];

/** @param {{project: string, fork?: string}} props */
export function Journal({ project, fork }) {
  const [words, setWords] = useState(/** @type {Record<string, any>} */ ({ fork }));
  const [age, setAge] = useState("");
  const { rows, following, error, busy, more } = usePages(at(project) + "/events", { ...words, count: 100 }, "events", project);
  const set = (/** @type {Record<string, any>} */ more) => setWords((before) => ({ ...before, ...more }));
  const setSince = (/** @type {string} */ value) => {
    setAge(value);
    set({ since: value ? Date.now() - Number(value) : "" });
  };
  return html`<section class="stack" aria-label="Journal">
    <div class="row journal-words" role="search">
      <${Typed} label="Search the journal" placeholder="Search: npm install, evil.example …" set=${(/** @type {string} */ grep) => set({ grep })} />
      <${Choice} label="What" options=${KINDS} value=${words.kind ?? ""} set=${(/** @type {string} */ kind) => set({ kind })} />
      <${Choice} label="Verdict" options=${VERDICTS} value=${words.verdict ?? ""} set=${(/** @type {string} */ verdict) => set({ verdict })} />
      <${Choice} label="When" options=${SINCE} value=${age} set=${setSince} />
      <${Typed} label="Agent" placeholder="agent" small set=${(/** @type {string} */ agent) => set({ agent })} />
      ${fork && html`<label class="check"><input type="checkbox" checked=${Boolean(words.fork)} onChange=${(/** @type {any} */ event) => set({ fork: event.currentTarget.checked ? fork : "" })} /><span>only this fork</span></label>`}
    </div>
    <${Verify} project=${project} />
    ${error && html`<p class="problem" role="alert">${error.message}</p>`}
    ${!rows && !error && html`<div aria-busy="true"><div class="skeleton"></div><div class="skeleton"></div><div class="skeleton"></div></div>`}
    ${rows && !rows.length && html`<p class="empty">${following ? "Nothing of that kind so far." : "Nothing of that kind has happened."}</p>`}
    ${rows && rows.length > 0 && html`<ol class="events" aria-label="Events, newest first">${rows.map((/** @type {any} */ one) => html`<${Happened} key=${one.number} one=${one} />`)}</ol>`}
    ${following !== null && following !== undefined && html`<p><button type="button" disabled=${busy} onClick=${more}>${busy ? "Looking…" : "Older ones"}</button> <span class="dim small">searched down to event ${following.toLocaleString("en")}</span></p>`}
  </section>`;
}

/** @param {{one: any}} props */
function Happened({ one }) {
  const [open, setOpen] = useState(false);
  return html`<li class=${"event " + GRAVITY[one.gravity]}><button type="button" class="quiet" aria-expanded=${String(open)} onClick=${() => setOpen(!open)}>
      <time class="dim small" datetime=${iso(one.time)}>${clock(one.time)}</time><span class="kind">${one.kind.replace("_", " ")}</span>
      <span class="dim name small fork">${one.fork || "–"}</span><span class="name told">${one.line}</span></button>
    ${open && html`<pre class="data" tabindex="0"><span class="dim">event ${one.number}${"\n"}</span>${JSON.stringify(one.data, null, 2)}</pre>`}</li>`;
}

/** @param {{project: string}} props */
function Verify({ project }) {
  const [job, setJob] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState("");
  const verify = () => {
    setProblem("");
    setJob({ state: "running" });
    post(at(project) + "/journal/verify").then((made) => finished(made, setJob)).then(setJob, (error) => {
      setJob(null);
      setProblem(error.message);
    });
  };
  const found = job?.result;
  return html`<div class="row"><button type="button" disabled=${job?.state === "running"} onClick=${verify}>Verify the journal</button>
    <span role="status">${job?.state === "running" && html`<span class="dim">checking${job.total ? ` ${job.done.toLocaleString("en")} of ${job.total.toLocaleString("en")}` : ""}…</span>`}
      ${found?.intact && html`<span class="tag intact">Intact: ${count(found.events, "event")}</span> <code class="dim small name">${found.head.slice(0, 24)}…</code>`}
      ${found && !found.intact && html`<span class="tag bad">Not intact</span>`}</span>
    ${(problem || job?.problem) && html`<span class="problem" role="alert">${problem || job.problem.error}</span>`}
    ${found && !found.intact && html`<ul class="problem">${found.problems.map((/** @type {string} */ one) => html`<li>${one}</li>`)}</ul>`}</div>`;
}

/** @param {{label: string, options: string[][], value: string, set: (value: string) => void}} props */
function Choice({ label, options, value, set }) {
  return html`<select aria-label=${label} value=${value} onChange=${(/** @type {any} */ event) => set(event.currentTarget.value)}>
    ${options.map(([one, text]) => html`<option key=${one} value=${one} selected=${one === value}>${text}</option>`)}</select>`;
}

/** A text field that reports its value when typing has paused. @param {{label: string, placeholder: string, small?: boolean, set: (value: string) => void}} props */
function Typed({ label, placeholder, small = false, set }) {
  const [value, setValue] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => set(value.trim()), 250);
    return () => clearTimeout(timer);
  }, [value]);
  return html`<input type="search" class=${small ? "short" : "grow"} aria-label=${label} placeholder=${placeholder} value=${value}
    onInput=${(/** @type {any} */ event) => setValue(event.currentTarget.value)} />`;
}
