// The output of a command as lines with colours. All of it is text: it cannot affect the page.
//
// Supported, of ECMA-48: SGR (colours and weight), CR, BS, HT, LF, "erase in line". Other sequences are dropped. Other
// control characters, and those that change the reading order, are shown as escapes.

import { INVISIBLE } from "./tables.js";

/** @typedef {{text: string, style: string}} Run */
/** @typedef {{id: number, runs: Run[]}} Line */

const LINES = 5000;
const WIDEST = 4000; // characters of a line; a longer line is cut, with "…"
const ODD = new RegExp(`(?![\n\ufe0e\ufe0f])[${INVISIBLE}]`, "gu"); // of an emoji, a selector is seen
const NEXT = /[\r\n\b]|\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[PX^_][^\u001b]*\u001b\\|[ -/]*[0-Z\\^-~])/u;
const UNFINISHED = /\u001b(?:\[[0-?]*[ -/]*|\][^\u0007\u001b]*\u001b?|[PX^_][^\u001b]*\u001b?|[ -/]*)$/u;
const LONGEST = 4096; // characters of an incomplete sequence that is kept

/** One line, printable. @param {string} text */
export const printable = (text) => text.replace(ODD, (one) => {
  const code = /** @type {number} */ (one.codePointAt(0)).toString(16);
  return one < "\x80" ? `\\x${code.padStart(2, "0")}` : `\\u{${code}}`;
});

export class Screen {
  constructor() {
    /** @type {Line[]} */
    this.lines = [];
    this.left = 0; // lines that were dropped
    this.number = 0;
    this.rest = "";
    this.style = "";
    /** @type {{text: string, style: string}[]} one for each character of the line that is written */
    this.cells = [];
    this.column = 0;
    this.begin();
  }

  begin() {
    this.cells = [];
    this.column = 0;
    this.lines.push({ id: ++this.number, runs: [] });
    if (this.lines.length > LINES) this.left += this.lines.splice(0, this.lines.length - LINES).length;
  }

  /** Mark a gap in the output. @param {string} what in words */
  gap(what) {
    this.rest = "";
    this.style = "";
    if (this.cells.length) this.begin();
    for (const one of what) this.cells.push({ text: one, style: "sgr-dim" });
    this.draw();
    this.begin();
  }

  /** @param {string} text */
  write(text) {
    let data = this.rest + text;
    this.rest = "";
    const open = UNFINISHED.exec(data);
    if (open && data.length - open.index < LONGEST) {
      this.rest = data.slice(open.index);
      data = data.slice(0, open.index);
    }
    const many = data.split("\n").length - LINES; // lines that would be dropped at once are not drawn
    if (many > 1) {
      let at = 0;
      for (let skipped = 0; skipped < many; skipped++) at = data.indexOf("\n", at) + 1;
      this.left += many + this.lines.length - 1;
      this.lines = [];
      this.begin();
      data = data.slice(at);
    }
    while (data) {
      const found = NEXT.exec(data);
      this.put(found ? data.slice(0, found.index) : data);
      if (!found) break;
      this.obey(found[0]);
      data = data.slice(found.index + found[0].length);
    }
    this.draw();
  }

  /** @param {string} text */
  put(text) {
    for (const one of printable(text)) {
      if (one === "\t") {
        do this.set(" "); while (this.column % 8);
      } else this.set(one);
    }
  }

  /** @param {string} character */
  set(character) {
    if (this.column < WIDEST) this.cells[this.column] = { text: character, style: this.style };
    else if (this.column === WIDEST) this.cells[this.column] = { text: "…", style: "" };
    this.column++;
  }

  /** @param {string} sequence */
  obey(sequence) {
    const last = sequence.at(-1);
    if (sequence === "\n") {
      this.draw();
      this.begin();
    } else if (sequence === "\r") this.column = 0;
    else if (sequence === "\b") this.column = Math.max(0, this.column - 1);
    else if (sequence.startsWith("\u001b[") && last === "m") this.style = styled(this.style, sequence.slice(2, -1));
    else if (sequence.startsWith("\u001b[") && last === "K") this.erase(sequence.slice(2, -1));
  }

  /** @param {string} what */
  erase(what) {
    if (what === "" || what === "0") this.cells.length = Math.min(this.cells.length, this.column);
    else if (what === "2") this.cells = [];
  }

  draw() {
    /** @type {Run[]} */
    const runs = [];
    for (let at = 0; at < this.cells.length; at++) {
      const { text, style } = this.cells[at] ?? { text: " ", style: "" };
      const before = runs.at(-1);
      if (before && before.style === style) before.text += text;
      else runs.push({ text, style });
    }
    const line = this.lines[this.lines.length - 1];
    this.lines[this.lines.length - 1] = { id: line.id, runs };
  }
}

/**
 * The style after a "select graphic rendition": class names of watch.css, "sgr-bold sgr-31".
 * @param {string} before @param {string} words
 */
export function styled(before, words) {
  let style = new Set(before.split(" ").filter(Boolean));
  const codes = words.split(/[;:]/).map(Number);
  for (let at = 0; at < codes.length; at++) {
    const code = codes[at];
    if (code === 38 || code === 48) at += codes[at + 1] === 5 ? 2 : 4; // a colour by number or by components is ignored
    else if (code === 0) style = new Set();
    else if (code === 1) style.add("sgr-bold");
    else if (code === 2) style.add("sgr-dim");
    else if (code === 3) style.add("sgr-italic");
    else if (code === 4) style.add("sgr-underline");
    else if (code === 22) style = without(style, /bold|dim/);
    else if (code === 23) style = without(style, /italic/);
    else if (code === 24) style = without(style, /underline/);
    else if (code === 39) style = without(style, /^sgr-\d/);
    else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) {
      style = without(style, /^sgr-\d/);
      style.add(`sgr-${code >= 90 ? code - 60 : code}`);
    }
  }
  return [...style].join(" ");
}

/** @param {Set<string>} style @param {RegExp} which */
const without = (style, which) => new Set([...style].filter((one) => !which.test(one)));
