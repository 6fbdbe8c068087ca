// Sizes, times and counts in words.

/** @param {number} bytes */
export function size(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  let rest = bytes;
  while (rest >= 1000 && at < units.length - 1) {
    rest /= 1000;
    at++;
  }
  return `${at && rest < 10 ? rest.toFixed(1) : Math.round(rest)} ${units[at]}`;
}

/** @param {number} number @param {string} one @param {string} [many] */
export const count = (number, one, many = one + "s") => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

/** A duration. @param {number} milliseconds */
export function lasting(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

/** @param {number} time milliseconds since 1970 */
export function clock(time) {
  const then = new Date(time);
  const two = (/** @type {number} */ number) => String(number).padStart(2, "0");
  const day = `${then.getFullYear()}-${two(then.getMonth() + 1)}-${two(then.getDate())}`;
  const hour = `${two(then.getHours())}:${two(then.getMinutes())}:${two(then.getSeconds())}`;
  return new Date().toDateString() === then.toDateString() ? hour : `${day} ${hour}`;
}

/** For the attribute of <time>. @param {number} time */
export const iso = (time) => new Date(time).toISOString();
