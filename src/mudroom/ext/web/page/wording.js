// Numbers and sizes in words.

/** @param {number} n */
export const number = (n) => n.toLocaleString("en-US");

/** @param {number} n @param {string} one @param {string} [many] */
export const plural = (n, one, many = one + "s") => `${number(n)} ${n === 1 ? one : many}`;

/** @param {number} bytes */
export function size(bytes) {
  if (bytes < 1000) return plural(bytes, "byte");
  for (const unit of ["kB", "MB", "GB"]) {
    bytes /= 1000;
    if (bytes < 999.5 || unit === "GB") return `${bytes < 9.95 ? bytes.toFixed(1) : number(Math.round(bytes))} ${unit}`;
  }
  return "";
}
