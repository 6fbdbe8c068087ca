// Notifications while the page is closed: this browser's push subscription (W3C Push API), and the list of all devices.
import { get, post, remove } from "./api.js";
import { html, useEffect, useState } from "./html.js";
import { kept } from "./store.js";

const WORKER = new URL("push/worker.js", document.baseURI).href;
const SCOPE = new URL("push/", document.baseURI).href;
const ON = "push"; // whether the user has asked for it in this browser

/** The page registers no other worker (Trusted Types, W3C). */
const trusted = /** @type {any} */ (globalThis).trustedTypes?.createPolicy("push", { createScriptURL: () => WORKER });

/** Whether a registration is the page's own, and wanted. @param {ServiceWorkerRegistration} one */
export const isWanted = (one) => kept.get(ON) === "on" && one.scope === SCOPE && (one.active ?? one.waiting ?? one.installing)?.scriptURL === WORKER;

/** @typedef {{id: string, name: string, service: string, added: number, until: number, problem: string, is_this: boolean}} Device */
/** @typedef {{devices: Device[], key: string, problem: string}} Devices */

/** Why this browser cannot be notified; empty: it can. */
const lacks = () => (!("serviceWorker" in navigator && "PushManager" in window && "Notification" in window) ? "this browser cannot be notified; on an iPhone, add the page to the home screen first" : "");

/** @param {PushSubscription} subscription @returns {Promise<Devices>} */
function tell(subscription) {
  const { endpoint = "", keys = {} } = subscription.toJSON();
  return post("/devices", { name: nameOf(navigator.userAgent), endpoint, key: keys.p256dh ?? "", secret: keys.auth ?? "", origin: location.origin });
}

/** @param {string} agent */
function nameOf(agent) {
  const browser = /(Edg|OPR|Firefox|Chrome|Safari)/.exec(agent)?.[1] ?? "Browser";
  const system = /(Android|iPhone|iPad|Windows|Mac OS|Linux)/.exec(agent)?.[1] ?? "";
  return [{ Edg: "Edge", OPR: "Opera" }[browser] ?? browser, system].filter(Boolean).join(" on ");
}

/** @returns {Promise<Devices>} */
async function subscribe() {
  const { key, problem } = await get("/devices");
  if (problem || !key) throw new Error(problem || "mudroom serve has no key for notifications: mudroom serve --forget makes one");
  if ((await Notification.requestPermission()) !== "granted") throw new Error("the browser does not allow notifications");
  kept.set(ON, "on"); // before the worker is there: another window keeps it then
  try {
    await navigator.serviceWorker.register(trusted ? trusted.createScriptURL("") : WORKER, { scope: SCOPE, updateViaCache: "none" });
    const registration = await active();
    await (await registration.pushManager.getSubscription())?.unsubscribe(); // it may be for an older key
    return await tell(await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key }));
  } catch (error) {
    await end();
    throw error;
  }
}

/** The registration, when its worker runs: `ready` is for workers that control the page. @returns {Promise<ServiceWorkerRegistration>} */
async function active() {
  const registration = /** @type {ServiceWorkerRegistration} */ (await navigator.serviceWorker.getRegistration(SCOPE));
  const coming = registration.active ? null : registration.installing ?? registration.waiting;
  if (coming) await new Promise((resolve) => coming.addEventListener("statechange", () => coming.state === "activated" && resolve(null)));
  return registration;
}

/** End it in this browser. */
async function end() {
  kept.set(ON, "off");
  const registration = await navigator.serviceWorker.getRegistration(SCOPE);
  await (await registration?.pushManager.getSubscription())?.unsubscribe();
  await registration?.unregister();
}

/** The subscription is told anew at each visit, which renews it; the worker's script is looked for anew. @returns {Promise<Devices>} */
async function renew() {
  const registration = kept.get(ON) === "on" ? await navigator.serviceWorker.getRegistration(SCOPE) : undefined;
  registration?.update().catch(() => {}); // offline, or the server has ended
  const subscription = await registration?.pushManager.getSubscription();
  return subscription ? tell(subscription) : get("/devices");
}

/** The switch for this device, and the list. */
export function Devices() {
  const [known, setKnown] = useState(/** @type {Devices | null} */ (null));
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const why = lacks();
  const run = async (/** @type {() => Promise<Devices>} */ work) => {
    setBusy(true);
    setProblem("");
    await work().then(setKnown, (error) => setProblem([error.message, error.hint].filter(Boolean).join(": ")));
    setBusy(false);
  };
  useEffect(() => void (kept.get(ON) === "on" && !why && run(renew)), []);
  const own = known?.devices.find((one) => one.is_this);
  const drop = (/** @type {Device} */ one) => run(async () => {
    await remove("/devices/" + one.id);
    if (one.is_this) await end();
    return get("/devices");
  });
  const flip = () => (own ? drop(own) : run(subscribe));
  return html`<label class="check"><input type="checkbox" checked=${Boolean(own)} disabled=${busy || Boolean(why)} aria-describedby="push-said" onChange=${flip} /><span>Notify this device when the page is closed</span></label>
    <span id="push-said" class=${problem ? "problem" : ""} role="status">${problem || why}</span>
    <details class="devices" onToggle=${(/** @type {any} */ event) => event.currentTarget.open && !known && run(renew)}><summary>Devices that are notified${known ? ` (${known.devices.length})` : ""}</summary>
      <ul>${known?.devices.map((one) => html`<li key=${one.id}><span class="name">${one.name}</span>${one.is_this && " (this one)"} <span class="name dim">by ${one.service}, since ${new Date(one.added).toLocaleDateString()}</span>
        ${one.problem && html`<span class="problem name">${one.problem}</span>`}
        <button type="button" class="quiet" disabled=${busy} onClick=${() => drop(one)}>Remove<span class="hidden"> ${one.name}</span></button></li>`)}</ul>
      ${known?.devices.length === 0 && html`<p>None.</p>`}</details>`;
}
