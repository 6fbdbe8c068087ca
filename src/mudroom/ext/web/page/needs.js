// The first view: what needs the user, the most urgent first, and what runs. Pure.

/**
 * @typedef {{kind: string, fork: string, agent: string, files: number, badge: any, exit_code: number | null, command: string, ended: number,
 *   order: number[], words: string, action: string, question: string}} Notice
 * @typedef {{id: string, path: string, notices: Notice[], questions: number, running: number}} Project
 * @typedef {{project: Project, notice: Notice}} Need
 */

export const MOST = 8; // needs that are shown

/** What needs the user in all projects, in order. @param {Project[]} projects @returns {Need[]} */
export function needsOf(projects) {
  const needs = projects.flatMap((project) => project.notices.filter((one) => one.kind !== "running").map((notice) => ({ project, notice })));
  return needs.sort((one, other) => compared(one.notice.order, other.notice.order));
}

/** @param {number[]} one @param {number[]} other */
function compared(one, other) {
  const at = one.findIndex((number, index) => number !== other[index]);
  return at < 0 ? 0 : one[at] - other[at];
}

/** The forks that run, by project. @param {Project[]} projects @returns {{project: Project, notices: Notice[]}[]} */
export function runningOf(projects) {
  return projects.filter((one) => one.running > 0).map((project) => ({ project, notices: project.notices.filter((one) => one.kind === "running") }));
}
