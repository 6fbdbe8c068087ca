// Every shortcut of the page, in one table: key, scope and action.
//
// 1. No shortcut works while the user types, nor with Ctrl, Alt or Meta: those are the browser's.
// 2. Space and Enter belong to a focused button, link or box.
// 3. All shortcuts can be switched off (WCAG 2.2, 2.1.4).

/** @typedef {{name: string, keys: string[], scope: string, what: string}} Shortcut */

/** The scopes, the nearest last: it is asked first. */
export const SCOPES = { page: "Everywhere", home: "All projects", fork: "A fork", review: "The list of files", diff: "A file", conflict: "Conflicts", watch: "Watch", decide: "A question" };

/** @type {Shortcut[]} */
export const SHORTCUTS = [
  { name: "help", keys: ["?"], scope: "page", what: "Show these shortcuts" },
  { name: "theme", keys: ["T"], scope: "page", what: "Other colours: system, light, dark" },
  { name: "home", keys: ["H"], scope: "page", what: "All projects" },
  { name: "questions", keys: ["Q"], scope: "page", what: "To the questions that wait, and back" },
  { name: "next-need", keys: ["j", "ArrowDown"], scope: "home", what: "Next of what needs you; Enter opens it" },
  { name: "previous-need", keys: ["k", "ArrowUp"], scope: "home", what: "The one before" },
  { name: "to-review", keys: ["1"], scope: "fork", what: "Review" },
  { name: "to-conflicts", keys: ["2"], scope: "fork", what: "Conflicts" },
  { name: "to-watch", keys: ["3"], scope: "fork", what: "Watch" },
  { name: "next", keys: ["j", "ArrowDown"], scope: "review", what: "Next file" },
  { name: "previous", keys: ["k", "ArrowUp"], scope: "review", what: "Previous file" },
  { name: "page-down", keys: ["PageDown"], scope: "review", what: "A screen further" },
  { name: "page-up", keys: ["PageUp"], scope: "review", what: "A screen back" },
  { name: "first", keys: ["Home"], scope: "review", what: "First file" },
  { name: "last", keys: ["End"], scope: "review", what: "Last file" },
  { name: "fold", keys: ["h", "ArrowLeft"], scope: "review", what: "Close the folder, or go to it" },
  { name: "unfold", keys: ["l", "ArrowRight"], scope: "review", what: "Open the folder" },
  { name: "choose", keys: ["x", "Enter"], scope: "review", what: "Apply this file, or not" },
  { name: "looked", keys: [" "], scope: "review", what: "Looked at it: mark the file and go on" },
  { name: "unlooked", keys: ["U"], scope: "review", what: "Next file that was not looked at" },
  { name: "filter", keys: ["/"], scope: "review", what: "Type to filter" },
  { name: "mode", keys: ["t"], scope: "review", what: "By risk, as a tree, or flat" },
  { name: "all", keys: ["A"], scope: "review", what: "Choose all that are listed, or none of them" },
  { name: "apply", keys: ["a"], scope: "review", what: "Apply; asks first" },
  { name: "back", keys: ["Escape"], scope: "review", what: "Back to the list" },
  { name: "next-hunk", keys: ["n"], scope: "diff", what: "Next hunk" },
  { name: "previous-hunk", keys: ["p"], scope: "diff", what: "Previous hunk" },
  { name: "choose-hunk", keys: ["x"], scope: "diff", what: "Apply the focused hunk, or not" },
  { name: "remark", keys: ["c"], scope: "diff", what: "Write a remark about the focused hunk's lines" },
  { name: "observed", keys: ["y"], scope: "diff", what: "Commands and turns that were observed at the focused hunk" },
  { name: "parts", keys: ["v"], scope: "diff", what: "Packages, cells, keys, tables or members of the file, or its text" },
  { name: "layout", keys: ["s"], scope: "diff", what: "Side by side, or unified" },
  { name: "next-part", keys: ["]"], scope: "watch", what: "Next part: commands, checkpoints, network …" },
  { name: "previous-part", keys: ["["], scope: "watch", what: "Previous part" },
  { name: "field", keys: ["/"], scope: "watch", what: "Type a command, or what to search for" },
  { name: "next-place", keys: ["n"], scope: "conflict", what: "Next conflicting place" },
  { name: "previous-place", keys: ["p"], scope: "conflict", what: "Previous conflicting place" },
  { name: "ours", keys: ["1"], scope: "conflict", what: "Take the project's version of the focused place" },
  { name: "theirs", keys: ["2"], scope: "conflict", what: "Take the fork's there" },
  { name: "both", keys: ["3"], scope: "conflict", what: "Take both there" },
  { name: "base", keys: ["4"], scope: "conflict", what: "Take the original there" },
  { name: "allow-once", keys: ["y"], scope: "decide", what: "Allow the focused question once" },
  { name: "deny", keys: ["n"], scope: "decide", what: "Deny it" },
];

const NAMES = /** @type {Record<string, string>} */ ({
  " ": "Space", ArrowDown: "↓", ArrowUp: "↑", ArrowLeft: "←", ArrowRight: "→", PageDown: "Page Down", PageUp: "Page Up", Escape: "Esc",
});

/** The name of a key, for people. @param {string} key */
export const named = (key) => NAMES[key] ?? (/^[A-Z]$/.test(key) ? "Shift " + key : key);

/**
 * The shortcut of a key press.
 * @param {{key: string, ctrlKey?: boolean, altKey?: boolean, metaKey?: boolean, isComposing?: boolean}} press
 * @param {{tag: string, type?: string, role?: string, editable?: boolean}} target the focused element
 * @param {string} scope
 * @returns {Shortcut | null}
 */
export function meant(press, target, scope) {
  if (press.ctrlKey || press.altKey || press.metaKey || press.isComposing || types(target)) return null;
  if ((press.key === " " || press.key === "Enter") && acts(target)) return null;
  if (/^(Arrow|Home|End|Page)/.test(press.key) && moves(target)) return null;
  return SHORTCUTS.find((one) => one.scope === scope && one.keys.includes(press.key)) ?? null;
}

/** @param {{tag: string, type?: string, editable?: boolean}} target */
export function types({ tag, type = "", editable = false }) {
  return editable || tag === "TEXTAREA" || tag === "SELECT" || (tag === "INPUT" && !["checkbox", "radio", "button"].includes(type));
}

/** @param {{tag: string, role?: string}} target */
const acts = ({ tag, role = "" }) => ["BUTTON", "A", "SUMMARY", "INPUT"].includes(tag) || role === "button" || role === "slider";

/** @param {{tag: string, type?: string, role?: string}} target */
const moves = ({ tag, type = "", role = "" }) => (tag === "INPUT" && type === "radio") || role === "slider" || role === "separator";
