// Which two candidates of a try are compared at a path. Pure.

/** @typedef {{candidates: number[], change: string, added: number, removed: number}} Group */
/** @typedef {{id: string, path: string, extent: string, groups: Group[], unchanged: number[], compared: boolean}} Compared */
/** @typedef {[number, number]} Pair places of the candidates on the left and on the right */

/** The place of the state that all candidates began from. */
export const BASE = -1;

/** The pair that shows most: two results, or the result of those that changed the path. @param {Compared} path @returns {Pair} */
export function pairOf({ groups, unchanged }) {
  if (groups.length > 1) return [groups[0].candidates[0], groups[1].candidates[0]];
  return [unchanged[0] ?? BASE, groups[0]?.candidates[0] ?? BASE];
}

/** The result of a candidate at a path; null: it left the path alone. @param {Compared} path @param {number} place */
export const groupOf = ({ groups }, place) => groups.find((one) => one.candidates.includes(place)) ?? null;

/** Whether both sides are known to be the same there. @param {Compared} path @param {Pair} pair */
export function alike(path, [left, right]) {
  if (left === right) return true;
  const [one, other] = [groupOf(path, left), groupOf(path, right)];
  return one === other && (one === null || path.compared);
}

/** @param {Pair} pair @param {readonly {compared: boolean}[]} candidates whether both sides can be shown */
export const canShow = (pair, candidates) => pair.every((place) => place === BASE || Boolean(candidates[place]?.compared));

const LISTED = 6;

/** Numbers of attempts, in words. @param {readonly number[]} numbers */
export const listed = (numbers) => numbers.slice(0, LISTED).join(", ") + (numbers.length > LISTED ? ` and ${numbers.length - LISTED} more` : "");

/** The name of a side. @param {number} place @param {readonly {attempts: number[]}[]} candidates */
export const sideName = (place, candidates) => (place === BASE ? "the original" : `attempt ${candidates[place].attempts[0]}`);

/** The verdict on a candidate, in words. @param {{state: string, exit_code: number, judged: number | null}} one */
export function verdict({ state, exit_code, judged }) {
  const code = judged ?? exit_code;
  return state === "failed" && code ? `failed (${code})` : state;
}
