// From the result of highlight.js to tokens by line. Pure; runs in the worker.
//
// The tree of scopes is walked, and no HTML is made. A scope becomes one of KINDS, or is dropped.

/** Our kinds by highlight.js's scopes (https://highlightjs.readthedocs.io/en/stable/css-classes-reference.html). */
const KINDS = new Map(/** @type {[string, string][]} */ (Object.entries({
  keyword: "keyword", "meta keyword": "keyword", "variable.language": "keyword", "selector-pseudo": "keyword", literal: "literal", number: "literal", symbol: "literal",
  bullet: "literal", string: "string", regexp: "string", "meta string": "string", "char.escape": "string", link: "string",
  quote: "comment", comment: "comment", doctag: "comment", title: "title", "title.class": "title", "title.function": "title",
  section: "title", "selector-id": "title", "selector-class": "title", "selector-tag": "keyword", tag: "name", name: "name",
  type: "type", built_in: "type", class: "type", attr: "attribute", attribute: "attribute", "selector-attr": "attribute",
  property: "attribute", variable: "attribute", "template-variable": "attribute", params: "", meta: "meta", "template-tag": "meta",
  "meta prompt": "meta", addition: "", deletion: "", strong: "", emphasis: "",
})));

/** @param {string} scope */
export function kindOf(scope) {
  for (let name = scope; name; name = name.slice(0, Math.max(0, name.lastIndexOf(".")))) {
    const found = KINDS.get(name);
    if (found !== undefined) return found;
  }
  return "";
}

/**
 * @param {{walk: (renderer: any) => any}} tree of a result, with `openNode`, `addText` and `closeNode` for its renderer
 * @param {number} lines how many lines there are
 * @returns {import("./segments.js").Token[][]}
 */
export function byLine(tree, lines) {
  /** @type {import("./segments.js").Token[][]} */
  const found = Array.from({ length: lines }, () => []);
  const within = [""];
  let [line, column] = [0, 0];
  tree.walk({
    openNode(/** @type {any} */ { scope }) {
      within.push((scope && kindOf(scope)) || within[within.length - 1]);
    },
    closeNode() {
      within.pop();
    },
    addText(/** @type {string} */ text) {
      const kind = within[within.length - 1];
      text.split("\n").forEach((part, at) => {
        if (at) [line, column] = [line + 1, 0];
        if (part && kind && found[line]) found[line].push({ start: column, end: column + part.length, kind });
        column += part.length;
      });
    },
  });
  return found;
}
