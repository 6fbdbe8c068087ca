// The service worker: it shows a notification, and opens the page. It answers no requests, so it is never between the
// page and its server. It is served at this path alone (server/guard.py).
//
// A former user of this port may have registered this path for all of the origin: the browser then keeps his script until
// ours is accepted in its place. So ours is accepted for any scope, and ends where the scope is not its own.
const self_ = /** @type {any} */ (globalThis);
const HOME = new URL("../", self_.location.href).href;
const isOurs = () => self_.registration.scope === HOME + "push/";
const windows = () => self_.clients.matchAll({ type: "window", includeUncontrolled: true });

self_.oninstall = () => self_.skipWaiting();
self_.onactivate = (/** @type {any} */ event) => isOurs() || event.waitUntil(end());
self_.onpush = (/** @type {any} */ event) => event.waitUntil(show(event.data?.json() ?? {}));
self_.onnotificationclick = (/** @type {any} */ event) => event.waitUntil(open(event.notification));

/** Leave the origin to its pages. */
async function end() {
  await self_.registration.unregister();
  await Promise.all((await windows()).map((/** @type {any} */ one) => one.navigate(one.url)));
}

/** @param {{title?: string, body?: string, tag?: string, to?: string}} said */
const show = ({ title = "mudroom", body = "", tag = "queue", to = "#/" }) => self_.registration.showNotification(title, { body, tag, data: to });

/** Focus the page, or open it at what was told. @param {any} notification */
async function open(notification) {
  notification.close();
  const to = /^#\/[\w./%~-]*$/.test(notification.data) ? notification.data : "#/";
  const page = (await windows()).find((/** @type {any} */ one) => one.url.startsWith(HOME));
  return page ? page.focus() : self_.clients.openWindow(HOME + to);
}
