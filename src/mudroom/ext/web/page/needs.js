// The first view: what needs the user, the most urgent first, and what runs. Pure.

/**
 * @typedef {{kind: string, fork: string, agent: string, files: number, badge: any, exit_code: number | null, command: string, ended: number}} Notice
 * @typedef {{id: string, path: string, notices: Notice[], questions: number, running: number}} Project
 * @typedef {{kind: string, project: Project, notice: Notice | null, text: string, action: string}} Need
 */

/** The order of kinds: what stops somebody comes first. */
const ORDER = ["question", "damaged", "conflict", "unverified", "cut off", "finished"];
export const MOST = 8; // needs that are shown

/** @param {number} number @param {string} noun */
const counted = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

/** What a notice says, and the name of its link. @type {Record<string, (notice: Notice) => [string, string]>} */
const WORDS = {
  damaged: () => ["damaged: it cannot be read", "Look"],
  conflict: (notice) => [`${counted(notice.files, "file")} in conflict with the project`, "Decide"],
  unverified: (notice) => [`${counted(notice.files, "changed file")}; not applied, for this failed${notice.exit_code ? ` with exit code ${notice.exit_code}` : ""}:`, "Look"],
  "cut off": () => ["its last command was interrupted", "Review"],
  finished: (notice) => [`${counted(notice.files, "changed file")}${notice.exit_code ? `, exit code ${notice.exit_code}` : ""}`, "Review"],
};

/** What needs the user in all projects, in order. @param {Project[]} projects @returns {Need[]} */
export function needsOf(projects) {
  const needs = projects.flatMap((project) => [
    ...(project.questions ? [{ kind: "question", project, notice: null, text: `${counted(project.questions, "question")} of agents`, action: "Answer" }] : []),
    ...project.notices.filter((notice) => notice.kind in WORDS).map((notice) => {
      const [text, action] = WORDS[notice.kind](notice);
      return { kind: notice.kind, project, notice, text, action };
    }),
  ]);
  const since = (/** @type {Need} */ one) => one.notice?.ended ?? 0;
  return needs.sort((one, other) => ORDER.indexOf(one.kind) - ORDER.indexOf(other.kind) || since(one) - since(other)); // who waits longest first
}

/** The forks that run, by project. @param {Project[]} projects @returns {{project: Project, notices: Notice[]}[]} */
export function runningOf(projects) {
  return projects.filter((one) => one.running > 0).map((project) => ({ project, notices: project.notices.filter((one) => one.kind === "running") }));
}
