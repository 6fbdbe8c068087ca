// Servers that run in forks: links to them, and the way in for a browser that is logged in to this page.
import { post, query } from "./api.js";
import { Alone } from "./frame.js";
import { html, useEffect, useState } from "./html.js";

/** @param {{host: string, label: string}} props `host`: without the page's port, at which it is served, too */
export function Server({ host, label }) {
  if (location.protocol !== "http:") return html`<span class="name">${label}</span>`; // behind a proxy, which leads to the page alone
  const address = `http://${host}${location.port && ":" + location.port}/`;
  return html`<a class="name" href=${address} target="_blank" rel="noopener noreferrer">${label}</a>`;
}

/** Goes on to a fork's host, with a code that lets this browser in. @param {{to: string}} props `to`: host and path */
export function Visit({ to }) {
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  useEffect(() => void post("/visit" + query({ to })).then(({ address }) => location.replace(address), setProblem), [to]);
  return html`<${Alone} title="A server in a fork" busy=${!problem}>${problem ? html`<p class="problem">${problem.message}</p><p>${problem.hint}</p>` : ""}
    <p><a href="#/">All projects</a></p></${Alone}>`;
}
