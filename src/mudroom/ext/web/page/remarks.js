// The reviewer's remarks about a fork: written at lines, files and the whole, sent to its agent in rounds.
import { atFork, finished, get, post } from "./api.js";
import { drawn, spelled } from "./code.js";
import { Dialog } from "./dialog.js";
import { html, useEffect, useMemo, useRef, useState } from "./html.js";
import { useLoaded } from "./load.js";
import { counted } from "./plural.js";
import { ODD, TEXT, CUT } from "./rows.js";
import { ofTab } from "./store.js";
import { text as linesOf } from "./source.js";
import { complain, toast } from "./toast.js";

/**
 * @typedef {{text: string, by: "reviewer" | "agent", time: number}} Answer
 * @typedef {{name: string, id: string, label: string, first: number, last: number, side: "new" | "old", where: string, state: string, text: string,
 *   suggestion: string | null, answers: Answer[], settled: boolean, unsent: boolean}} Remark
 * @typedef {{side: "new" | "old", first: number, last: number}} Draft lines that a new remark is about; 0: the file
 * @typedef {(name: string, act: string, text?: string) => Promise<boolean>} Act
 * @typedef {{file: string, path: string, project: string, fork: string, draft: Draft | null, begin: (draft: Draft) => void, end: () => void,
 *   add: (body: any) => Promise<boolean>, act: Act, at: (side: string, line: number) => Remark[]}} FileRemarks
 */

/** The remarks of a fork, with what is done about them. @param {string} project @param {string} fork */
export function useRemarks(project, fork) {
  const path = atFork(project, fork);
  const { data, error, reload } = useLoaded(path + "/remarks", (what, which) => which === project && what === "forks");
  const [draft, setDraft] = useState(/** @type {(Draft & {file: string}) | null} */ (null));
  const key = `since.${project}.${fork}`;
  const [only, setOnly] = useState(ofTab.get(key) === "yes");
  return useMemo(() => {
    const send = (/** @type {string} */ place, /** @type {any} */ body) => post(path + place, body).then(() => (reload(true), true), (refused) => (complain(refused), false));
    return {
      project, fork, data, error, draft, setDraft,
      since: only && data?.checkpoint ? `${fork}@${data.checkpoint}` : "",
      only: (/** @type {boolean} */ is) => (setOnly(is), ofTab.set(key, is ? "yes" : "no")),
      add: (/** @type {any} */ body) => send("/remarks", body),
      act: (/** @type {string} */ name, /** @type {string} */ act, text = "") => send(`/remarks/${encodeURIComponent(name)}`, { act, text }),
    };
  }, [path, data, error, draft, only]);
}

/** The ids of files with open remarks that were sent. @param {ReturnType<typeof useRemarks>} remarks @returns {ReadonlySet<string>} */
export const sentIn = ({ data }) => new Set((data?.remarks ?? []).filter((/** @type {Remark} */ one) => !one.settled && !one.unsent).map((/** @type {Remark} */ one) => one.id));

/** The remarks of one file. @param {ReturnType<typeof useRemarks>} remarks @param {any} row @returns {FileRemarks | null} */
export function ofFile(remarks, row) {
  if (!row) return null;
  const { project, fork, data, draft, setDraft, add, act } = remarks;
  const mine = /** @type {Remark[]} */ (data?.remarks.filter((/** @type {Remark} */ one) => one.id === row.id && one.first > 0) ?? []);
  return {
    file: row.id, path: row.path, project, fork, add, act,
    draft: draft?.file === row.id ? draft : null,
    begin: (wanted) => setDraft({ ...wanted, file: row.id }),
    end: () => setDraft(null),
    at: (side, line) => mine.filter((one) => one.side === side && Math.max(one.first, one.last) === line),
  };
}

/** A text field that grows with its text. @param {{label: string, value: string, onInput: (text: string) => void, submit: () => void, cancel: () => void, first?: boolean, code?: boolean}} props */
function Field({ label, value, onInput, submit, cancel, first = false, code = false }) {
  const element = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  useEffect(() => void (first && element.current?.focus()), []);
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit();
    else if (event.key === "Escape") cancel();
    else return;
    event.preventDefault();
  };
  return html`<textarea ref=${element} class=${code ? "code" : ""} rows=${Math.min(12, value.split("\n").length + 1)} aria-label=${label} value=${value}
    spellcheck=${code ? "false" : "true"} onKeyDown=${press} onInput=${(/** @type {any} */ event) => onInput(event.currentTarget.value)}></textarea>`;
}

/** The editor of a new remark, with a suggestion. @param {{draft: Draft, remarks: FileRemarks}} props */
export function Writer({ draft, remarks }) {
  const [text, setText] = useState("");
  const [suggestion, setSuggestion] = useState(/** @type {string | null} */ (null));
  const [busy, setBusy] = useState(false);
  const whole = draft.first === 0;
  const lines = whole ? remarks.path || "the whole" : draft.first === draft.last ? `line ${draft.first}` : `lines ${draft.first} to ${draft.last}`;
  const submit = async () => {
    if (!text.trim() || busy) return;
    setBusy(true);
    const { side, first, last } = draft;
    const body = { text, id: remarks.file, ...(whole ? {} : { side, first, last }), suggestion };
    if (await remarks.add(body)) remarks.end();
    else setBusy(false);
  };
  const suggest = async () => {
    const { lines: found } = await linesOf({ project: remarks.project, fork: remarks.fork, file: remarks.file }, "new", draft.first, draft.last - draft.first + 1);
    const plain = found.every((line) => !line[ODD]?.length && !line[CUT]);
    setSuggestion(plain ? found.map((line) => line[TEXT]).join("\n") : "");
  };
  const range = (/** @type {"first" | "last"} */ which) => html`<input type="number" min="1" aria-label=${which === "first" ? "First line" : "Last line"} value=${draft[which]}
    onChange=${(/** @type {any} */ event) => {
      const at = Math.max(1, Number(event.currentTarget.value) || 1);
      setSuggestion(null);
      remarks.begin({ ...draft, first: which === "first" ? at : Math.min(draft.first, at), last: which === "last" ? at : Math.max(draft.last, at) });
    }} />`;
  return html`<form class="writer" aria-label=${`A remark about ${lines}`} onSubmit=${(/** @type {Event} */ event) => (event.preventDefault(), submit())}>
    ${!whole && html`<p class="row dim">${draft.side === "old" ? "Removed lines" : "Lines"} ${range("first")} to ${range("last")}</p>`}
    <${Field} label=${`Remark about ${lines}`} value=${text} onInput=${setText} submit=${submit} cancel=${remarks.end} first />
    ${suggestion !== null && html`<p class="dim">Instead of ${lines}; empty: remove</p>
      <${Field} label=${`Lines instead of ${lines}`} value=${suggestion} onInput=${setSuggestion} submit=${submit} cancel=${() => setSuggestion(null)} first code />`}
    <div class="row"><button type="submit" class="primary" disabled=${busy || !text.trim()}>Add the remark</button>
      ${!whole && draft.side === "new" && suggestion === null && html`<button type="button" onClick=${() => suggest().catch(complain)}>Suggest lines</button>`}
      <button type="button" class="quiet" onClick=${remarks.end}>Cancel</button></div>
  </form>`;
}

/** A remark with its answers. @param {{one: Remark, act: Act, placed?: boolean}} props `placed`: with its place */
export function Thread({ one, act, placed = false }) {
  const [answer, setAnswer] = useState(/** @type {string | null} */ (null));
  const [open, setOpen] = useState(false);
  const [busy, setBusy] = useState(false);
  const run = async (/** @type {string} */ what, text = "") => {
    setBusy(true);
    const done = await act(one.name, what, text);
    setBusy(false);
    return done;
  };
  const submit = async () => void (answer?.trim() && (await run("answer", answer)) && setAnswer(null));
  if (one.settled && !open) return html`<section class="thread settled" aria-label=${`Remark ${one.name}, settled`}>
    <button type="button" class="quiet" aria-expanded="false" onClick=${() => setOpen(true)}>${placed && html`<span class="name">${one.label}</span> `}<span class="clip">${drawn(one.text.split("\n")[0])}</span> <span class="tag">settled</span></button></section>`;
  const button = (/** @type {string} */ what, /** @type {string} */ label, kind = "small") => html`<button type="button" class=${kind} disabled=${busy} onClick=${() => run(what)}>${label}<span class="hidden"> ${one.name}</span></button>`;
  return html`<section class="thread" aria-label=${`Remark ${one.name}: ${one.state}`}>
    <p class="row dim"><strong>${one.name}</strong>${placed && html`<span class="name">${one.label}</span>`}<span class=${"tag" + (one.where === "answered" || one.where === "outdated" ? " warn" : "")}>${one.state}</span></p>
    <p class="said">${said(one.text)}</p>
    ${one.answers.map((each) => html`<p key=${each.time} class=${"said " + each.by}><span class="dim">${each.by === "agent" ? "Agent: " : ""}</span>${said(each.text)}</p>`)}
    ${one.suggestion !== null && html`<div class="suggested" role="group" aria-label="Suggested lines">${one.suggestion === "" ? html`<p class="dim">Remove the lines</p>` : html`<pre>${said(one.suggestion.replace(/\n$/, ""))}</pre>`}</div>`}
    ${answer !== null && html`<${Field} label=${`Answer to ${one.name}`} value=${answer} onInput=${setAnswer} submit=${submit} cancel=${() => setAnswer(null)} first />`}
    <div class="row">${answer === null ? html`<button type="button" class="small" onClick=${() => setAnswer("")}>Answer<span class="hidden"> ${one.name}</span></button>` : html`<button type="button" class="small primary" disabled=${busy || !answer.trim()} onClick=${submit}>Add the answer</button><button type="button" class="small quiet" onClick=${() => setAnswer(null)}>Cancel</button>`}
      ${one.suggestion !== null && !one.settled && one.where === "here" && button("take", "Put it into the fork")}
      ${button(one.settled ? "reopen" : "settle", one.settled ? "Reopen" : "Settle")}${button("remove", "Remove", "small danger")}</div>
  </section>`;
}

/** A text with its line breaks, and with its invisible characters as chips. @param {string} text */
const said = (text) => text.split("\n").map((line, at) => [at > 0 && html`<br />`, drawn(line)]);

/** @param {{project: string, fork: string, remarks: ReturnType<typeof useRemarks>, rows: any[], shown: any, working: boolean}} props `shown`: the row of the file that is shown */
export function Remarks({ project, fork, remarks, rows, shown, working }) {
  const { data, add, act, since, only } = remarks;
  const [writes, setWrites] = useState(/** @type {{id: string, path: string} | null} */ (null)); // the file that a new remark is about
  const [asked, setAsked] = useState(/** @type {any} */ (null));
  const [sending, setSending] = useState(false);
  if (!data) return null;
  const open = data.remarks.filter((/** @type {Remark} */ one) => !one.settled).length;
  const about = writes && { file: writes.id, path: writes.path, project, fork, draft: null, begin: () => {}, end: () => setWrites(null), add, act, at: () => [] };
  const ask = () => get(atFork(project, fork) + "/prompt").then(setAsked, complain);
  const gone = since ? data.new.filter((/** @type {string} */ id) => !rows.some((row) => row.id === id)).length : 0;
  const send = (/** @type {boolean} */ waits) => {
    setAsked(null);
    setSending(true);
    post(atFork(project, fork) + "/send", { id: asked.id, waits }).then((job) => finished(job)).then((job) => {
      setSending(false);
      if (job.state === "failed") complain({ message: job.problem.error, hint: job.problem.hint });
      else if (job.result.exit_code) toast(`the agent ended with ${job.result.exit_code}: it has read the remarks or not`, { bad: true });
      else toast(`round ${job.result.round} ${waits ? "waits for the agent's look" : "is done: see what is new"}`);
    }, (error) => (setSending(false), complain(error)));
  };
  return html`<details class="remarks"><summary>${data.remarks.length ? html`${counted(open, "open remark")}${data.unsent > 0 && `, ${data.unsent} not sent`}` : "Remarks"}${data.round > 0 && ` · round ${data.round}`}</summary>
    <div class="remarks-body">
      <div class="row"><button type="button" onClick=${() => setWrites({ id: "", path: "" })}>Remark about the whole</button>
        ${shown && html`<button type="button" onClick=${() => setWrites({ id: shown.id, path: shown.path })}>Remark about <span class="name clip">${spelled(shown.path)}</span></button>`}
        <button type="button" class="primary" disabled=${!data.unsent || sending || working} onClick=${ask}>${sending ? "The agent works on them …" : `Send ${counted(data.unsent, "remark")} …`}</button>
        ${data.checkpoint && html`<label class="check"><input type="checkbox" checked=${Boolean(since)} onChange=${(/** @type {any} */ event) => only(event.currentTarget.checked)} /><span>Only what is new since round ${data.round}</span></label>`}</div>
      ${gone > 0 && html`<p class="dim" role="status">${counted(gone, "file is", "files are")} as before the fork again</p>`}
      ${data.cut_off.length > 0 && html`<p class="banner warn">The agent has read ${data.cut_off.join(", ")} or not: <code>mudroom send ${fork} --again</code> repeats them; settled ones are not sent.</p>`}
      ${data.damaged.map((/** @type {string} */ line) => html`<p class="banner warn name" key=${line}>${line}</p>`)}
      ${about && html`<${Writer} key=${about.file} draft=${{ side: "new", first: 0, last: 0 }} remarks=${about} />`}
      ${data.remarks.map((/** @type {Remark} */ one) => html`<${Thread} key=${one.name} one=${one} act=${act} placed />`)}
    </div>
    ${asked && html`<${Sending} asked=${asked} close=${() => setAsked(null)} send=${send} />`}
  </details>`;
}

/** What will be sent, and where to. @param {{asked: any, close: () => void, send: (waits: boolean) => void}} props */
function Sending({ asked, close, send }) {
  return html`<${Dialog} title="Send the remarks?" wide onClose=${close}>
    ${asked.command ? html`<p>The agent goes on with its conversation in this fork: <code class="name">${asked.command}</code></p>` : html`<p>${asked.problem}.</p>`}
    <p class="dim">Afterwards only what is new can be shown. An agent with the tools of <code>mudroom mcp</code> reads remarks that wait.</p>
    <pre class="prompt" tabindex="0" aria-label="What is sent">${asked.prompt}</pre>
    <div class="actions"><button type="button" autofocus onClick=${close}>Cancel</button>
      <button type="button" onClick=${() => send(true)}>Leave them for the agent's look</button>
      ${asked.command && html`<button type="button" class="primary" onClick=${() => send(false)}>Send</button>`}</div>
  </${Dialog}>`;
}
