import { html } from "./html.js";

/** The isolation level of a fork. @param {{badge: any}} props */
export function Level({ badge }) {
  return html`<span class=${"badge " + (badge.safe ? "safe" : badge.level === null ? "warn" : "open")} title=${badge.why}>${badge.label}<span class="hidden">: ${badge.why}</span></span>`;
}
