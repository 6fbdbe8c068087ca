// Requests of the page about one file.
import { atFork, get, keyed, query } from "./api.js";

/** @typedef {{project: string, fork: string, file: string, old?: string, new?: string, asNew?: boolean, from?: string, stamp?: string}} Place `old`,
 *   `new`: the compared states, if not the base and the fork; `asNew`: a moved file is shown
 *   as a new file; `from`: otherwise the file that has the old side;
 *   `stamp`: of the row in the list of a review */
/** @typedef {"old" | "new"} SideName */

/** @param {Place} place @param {number} [first] hunk @param {string} [version] of the page before this one */
export const difference = ({ project, fork, file, old, new: now, asNew, stamp }, first = 0, version = "") =>
  atFork(project, fork) + "/diff" + query({ file, old, new: now, as_new: asNew || undefined, first: first || undefined, version, stamp });

/** The file by its parts. @param {Place} place */
export const view = ({ project, fork, file, old, new: now }) => atFork(project, fork) + "/view" + query({ file, old, new: now });

/** The file of a side. @param {Pick<Place, "file" | "from">} place @param {SideName} side */
const fileOf = ({ file, from }, side) => (side === "old" && from) || file;

/**
 * Lines of one side, as they are.
 * @param {Place} place @param {SideName} side @param {number} first from 1 @param {number} count
 * @param {number} [column] the byte of the first line to begin with
 * @returns {Promise<{first: number, total: number, whole: boolean, lines: import("./rows.js").Line[]}>}
 */
export const text = ({ project, fork, old, new: now, ...place }, side, first, count, column) =>
  get(atFork(project, fork) + "/text" + query({ file: fileOf(place, side), old, new: now, side, first, count, column }));

/** The URL of the bytes of a side, for images. @param {Place} place @param {SideName} side */
export const blob = ({ project, fork, old, new: now, ...place }, side) =>
  keyed(atFork(project, fork) + "/blob" + query({ file: fileOf(place, side), old, new: now, side }));
