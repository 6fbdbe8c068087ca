// Addresses of the page: "#/", "#/new", "#/visit/HOST%2FPATH", "#/p/PROJECT", "#/p/PROJECT/try/NAME", "#/p/PROJECT/f/FORK/review|conflicts|watch".

/** @typedef {{view: string, project?: string, fork?: string, file?: string, tried?: string, to?: string}} Route */

/** Views by the pattern of their address; its groups are what the view is given. @type {[RegExp, string][]} */
export const ROUTES = [
  [/^\/?$/, "home"],
  [/^\/new$/, "new"],
  [/^\/visit\/(?<to>[^/]+)$/, "visit"],
  [/^\/p\/(?<project>[^/]+)\/?$/, "project"],
  [/^\/p\/(?<project>[^/]+)\/watch$/, "watch"],
  [/^\/p\/(?<project>[^/]+)\/try\/(?<tried>[^/]+)(?:\/(?<file>[\w-]+))?$/, "try"],
  [/^\/p\/(?<project>[^/]+)\/f\/(?<fork>[^/]+)(?:\/review(?:\/(?<file>[\w-]+))?)?$/, "review"],
  [/^\/p\/(?<project>[^/]+)\/f\/(?<fork>[^/]+)\/conflicts$/, "conflicts"],
  [/^\/p\/(?<project>[^/]+)\/f\/(?<fork>[^/]+)\/watch$/, "watch"],
];

/** @param {string} hash @returns {Route} `view` is "nothing" for an address that means nothing */
export function routeOf(hash) {
  for (const [pattern, view] of ROUTES) {
    const found = pattern.exec(hash.replace(/^#/, ""));
    if (!found) continue;
    try {
      const parts = Object.entries(found.groups ?? {}).filter(([, part]) => part !== undefined);
      return { view, ...Object.fromEntries(parts.map(([name, part]) => [name, decodeURIComponent(part)])) };
    } catch {
      break; // not percent-encoded text
    }
  }
  return { view: "nothing" };
}

/** @param {string} project */
export const toProject = (project) => "#/p/" + encodeURIComponent(project);
/** @param {string} project @param {string} fork @param {string} [view] @param {string} [file] */
export const toFork = (project, fork, view = "review", file = "") => `${toProject(project)}/f/${encodeURIComponent(fork)}/${view}${file && "/" + file}`;
/** @param {string} project @param {string} tried @param {string} [file] */
export const toTry = (project, tried, file = "") => `${toProject(project)}/try/${encodeURIComponent(tried)}${file && "/" + file}`;
