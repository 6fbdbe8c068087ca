// A new session: choose a folder, see the cost of staging it, make a fork of it.
import { at, atFork, get, post, query } from "./api.js";
import { spelled } from "./code.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { useLoaded } from "./load.js";
import { count, size } from "./say.js";

export function Start() {
  const [chosen, choose] = useState(/** @type {any} */ (null));
  const again = useRef(false);
  if (chosen) again.current = true;
  return html`<main class="page start" tabindex="-1"><h1>New session</h1>
    <p class="dim">Commands will work on a staged view of a folder. The folder itself stays as it is until changes are applied.</p>
    ${chosen ? html`<${Prospect} folder=${chosen} back=${() => choose(null)} />` : html`<${Picker} choose=${choose} again=${again.current} />`}</main>`;
}

// --- the folder ---

/** @param {{choose: (folder: any) => void, again: boolean}} props `again`: another one than was chosen */
function Picker({ choose, again }) {
  const [where, setWhere] = useState("");
  const [active, setActive] = useState(0);
  const [filter, setFilter] = useState("");
  const list = useRef(/** @type {HTMLUListElement | null} */ (null));
  const { data, error } = useLoaded("/folders" + query({ at: where }));
  const rows = (data?.folders ?? []).filter((/** @type {any} */ one) => one.name.toLowerCase().includes(filter.toLowerCase()));
  const current = Math.min(active, Math.max(0, rows.length - 1));
  useEffect(() => {
    if (data?.at === null && data.folders.length === 1 && !data.folders[0].problem) setWhere(data.folders[0].id);
  }, [data]);
  useEffect(() => void (again && list.current?.focus()), []);
  useEffect(() => list.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" }), [current, data]);
  const go = (/** @type {string} */ id) => {
    setWhere(id);
    setActive(0);
    setFilter("");
    list.current?.focus();
  };
  const enter = (/** @type {any} */ one) => one && !one.problem && go(one.id);
  const press = (/** @type {KeyboardEvent} */ event) => {
    const inList = event.target === list.current;
    const to = { ArrowDown: current + 1, ArrowUp: current - 1, PageDown: current + 10, PageUp: current - 10, Home: inList ? 0 : NaN, End: inList ? rows.length - 1 : NaN }[event.key];
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (to !== undefined && !Number.isNaN(to)) setActive(Math.max(0, Math.min(rows.length - 1, to)));
    else if (event.key === "Enter" || (inList && event.key === "ArrowRight")) enter(rows[current]);
    else if (inList && event.key === " " && rows[current] && !rows[current].problem) choose(rows[current]);
    else if (inList && (event.key === "ArrowLeft" || event.key === "Backspace") && data?.above !== null) go(data.above);
    else return;
    event.preventDefault();
  };
  return html`<section class="panel picker" aria-label="Choose a folder">
    <div class="panel-head"><${Crumbs} at=${data?.at} go=${go} />
      <span class="grow"></span><input type="search" aria-label="Find a folder here" placeholder="Find" value=${filter} onKeyDown=${press}
        onInput=${(/** @type {any} */ event) => (setFilter(event.currentTarget.value), setActive(0))} /></div>
    ${error && html`<p class="problem remark" role="alert">${error.message}${error.hint && `: ${error.hint}`} <button type="button" class="quiet" onClick=${() => go("")}>Begin again</button></p>`}
    ${data?.at && html`<div class="here"><span class="grow">${data.refused ? html`<span class="dim">This cannot be a project: ${data.refused}</span>` : html`Use <b class="name">${spelled(data.at.name)}</b>${data.at.vault ? ", which is a project already" : ""}`}</span>
      ${!data.refused && html`<button type="button" class="primary" onClick=${() => choose(data.at)}>Use this folder</button>`}</div>`}
    <ul ref=${list} class="folders" role="listbox" tabindex="0" aria-label="Folders" aria-activedescendant=${rows.length ? `folder-${current}` : undefined} onKeyDown=${press} aria-busy=${String(!data)}>
      ${rows.map((/** @type {any} */ one, /** @type {number} */ number) => html`
        <li key=${one.id} id=${`folder-${number}`} role="option" aria-selected=${String(number === current)} aria-disabled=${String(Boolean(one.problem))}
          class=${one.problem ? "closed" : ""} onClick=${() => (setActive(number), enter(one))}>
          <span class="name">${spelled(one.name)}${data.at ? "/" : ""}</span>
          ${one.vault && html`<span class="tag">has forks here</span>`}${one.is_project && !one.vault && html`<span class="tag">project</span>`}
          ${one.problem && html`<span class="dim small">${one.problem}</span>`}</li>`)}</ul>
    ${data && !rows.length && html`<p class="empty">${filter ? "No folder here has that in its name." : "There are no folders in this one."}</p>`}
    ${data?.more > 0 && html`<p class="remark dim">and ${count(data.more, "more folder")}, which are not listed</p>`}
    <p class="remark dim small keys"><kbd>↑</kbd> <kbd>↓</kbd> choose, <kbd>Enter</kbd> or <kbd>→</kbd> open, <kbd>←</kbd> back, <kbd>Space</kbd> use it</p></section>`;
}

/** The folder as steps from its root. @param {{at: any, go: (id: string) => void}} props */
function Crumbs({ at: folder, go }) {
  const [steps, setSteps] = useState(/** @type {any[]} */ ([]));
  useEffect(() => {
    if (!folder) return setSteps([]);
    let over = false;
    const climb = async () => {
      const found = [folder];
      let above = (await get("/folders" + query({ at: folder.id }))).above;
      while (above) {
        const one = await get("/folders" + query({ at: above }));
        found.unshift(one.at);
        above = one.above;
      }
      if (!over) setSteps(found);
    };
    setSteps((before) => {
      const known = before.findIndex((one) => one.id === folder.id);
      return known >= 0 ? before.slice(0, known + 1) : [folder];
    });
    climb().catch(() => {}); // the folder itself shows the error
    return () => void (over = true);
  }, [folder?.id]);
  return html`<nav aria-label="The folder, from its root"><ol class="row steps"><li><button type="button" class="quiet" onClick=${() => go("")}>All roots</button></li>
    ${steps.map((one, number) => html`<li key=${one.id}><button type="button" class="quiet name" aria-current=${number === steps.length - 1 ? "location" : undefined} title=${one.path} onClick=${() => go(one.id)}>${spelled(number ? one.name : one.path)}</button></li>`)}</ol></nav>`;
}

// --- the cost ---

/** @param {{folder: any, back: () => void}} props */
function Prospect({ folder, back }) {
  const [found, setFound] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const title = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => title.current?.focus({ preventScroll: true }), []); // the focused list is gone
  useEffect(() => {
    let over = false;
    post("/folders/measure", { id: folder.id }).then((data) => over || setFound(data), (caught) => over || setError(caught));
    return () => void (over = true);
  }, [folder.id]);
  return html`<section class="stack prospect">
    <div class="spread"><h2 class="name" ref=${title} tabindex="-1">${spelled(folder.path)}</h2><button type="button" onClick=${back}>Another folder</button></div>
    ${error && html`<p class="banner bad" role="alert">${error.message}${error.hint && `: ${error.hint}`}</p>`}
    ${!found && !error && html`<div class="card" aria-busy="true"><p class="dim">Looking how large it is…</p><div class="skeleton"></div><div class="skeleton"></div></div>`}
    ${found && html`<${Measured} found=${found} /><${Make} folder=${folder} found=${found} />`}</section>`;
}

/** @param {{found: any}} props */
function Measured({ found }) {
  const least = found.complete ? "" : "at least ";
  const over = found.view !== "overlay" && found.copied > found.limit;
  return html`<div class="card"><dl class="facts">
    <div><dt>Size</dt><dd>${least}${size(found.size)} in ${count(found.files, "file")}</dd></div>
    <div><dt>View</dt><dd>${found.view === "overlay" ? "An overlay: nothing is copied, whatever the size" : found.view ? html`A copy of ${least}${size(found.copied)}; ${size(found.limit)} at most` : "None: commands are refused"}</dd></div>
    <div><dt>Isolation</dt><dd><span class=${"badge " + (found.badge.safe ? "safe" : "open")}>${found.badge.label}</span> <span class="dim">${found.badge.why}</span></dd></div>
    <div><dt>Secrets</dt><dd>${found.secrets_total ? html`${count(found.secrets_total, "file")} shown empty to commands: <${Names} names=${found.secrets} total=${found.secrets_total} />` : "None found by their names"}</dd></div>
    <div><dt>Left out</dt><dd>${found.excluded_total ? html`<span class="dim">of a copy, where one is made (a snapshot, or where no overlay can be had):</span> <${Names} names=${found.excluded.map((/** @type {any} */ one) => `${one.path} (${one.text})`)} total=${found.excluded_total} />` : "Nothing would be left out of a copy"}</dd></div></dl>
    ${over && html`<p class="banner bad" role="alert">A copy of it is larger than may be copied: raise copy.limit in .mudroom/policy.yaml, or name what to leave out with copy.exclude.</p>`}
    ${found.notes.map((/** @type {string} */ note) => html`<p class="dim small">${note}</p>`)}</div>`;
}

/** @param {{names: string[], total: number}} props */
function Names({ names, total }) {
  const few = names.slice(0, 4);
  if (total <= few.length) return html`<span class="name">${few.join(", ")}</span>`;
  return html`<details class="names"><summary><span class="name">${few.join(", ")}</span> and ${count(total - few.length, "more", "more")}</summary>
    <ul>${names.map((one) => html`<li class="name mono small">${one}</li>`)}${total > names.length && html`<li class="dim small">and ${count(total - names.length, "more", "more")}</li>`}</ul></details>`;
}

/** @param {{folder: any, found: any}} props */
function Make({ folder, found }) {
  const [name, setName] = useState("try-1");
  const [snapshot, setSnapshot] = useState(false);
  const [line, setLine] = useState("");
  const [busy, setBusy] = useState("");
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const made = useRef(/** @type {any} */ (null));
  const make = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (busy || !name.trim()) return;
    const fork = name.trim();
    setProblem(null);
    try {
      setBusy("Making the fork…");
      const project = await post("/projects", { id: folder.id });
      if (made.current !== project.id + "/" + fork) {
        await post(at(project.id) + "/forks", { name: fork, snapshot });
        made.current = project.id + "/" + fork; // a command that could not be started is tried again in this fork
      }
      if (line.trim()) {
        setBusy("Starting the command…");
        await post(atFork(project.id, fork) + "/commands", { command: ["sh", "-c", line] });
      }
      location.hash = `#/p/${encodeURIComponent(project.id)}/f/${encodeURIComponent(fork)}/watch`;
    } catch (error) {
      setProblem(error);
      setBusy("");
    }
  };
  return html`<form class="card make" onSubmit=${make}>
    <label class="field"><span>Name of the fork</span><input type="text" required maxlength="64" value=${name} autocomplete="off" onInput=${(/** @type {any} */ event) => setName(event.currentTarget.value)} /></label>
    <label class="check"><input type="checkbox" checked=${snapshot} onChange=${(/** @type {any} */ event) => setSnapshot(event.currentTarget.checked)} />
      <span>On a frozen copy of the folder as it is now (${size(found.copied)}), so that later edits of yours are not seen in it</span></label>
    <label class="field"><span>First command <span class="dim">(may be left out; <code>sh -c</code> reads it)</span></span><input type="text" class="mono" value=${line} autocomplete="off" autocapitalize="off" spellcheck=${false}
      placeholder="npm install" onInput=${(/** @type {any} */ event) => setLine(event.currentTarget.value)} /></label>
    ${problem && html`<p class="problem" role="alert">${problem.message}${problem.hint && `: ${problem.hint}`}</p>`}
    <div class="actions"><button type="submit" class="primary" disabled=${Boolean(busy) || !name.trim() || found.badge.level === null}>${busy || "Start"}</button></div></form>`;
}
