// Receives {language, text}; answers tokens by line. The page terminates it if it takes too long.
import hljs from "./vendor/highlight.js";
import { byLine } from "./tokens.js";

onmessage = ({ data: { language, text } }) => {
  const lines = text.split("\n").length;
  if (!hljs.getLanguage(language)) return postMessage([]);
  // eslint-disable-next-line no-underscore-dangle
  postMessage(byLine(hljs.highlight(text, { language, ignoreIllegals: true })._emitter, lines));
};
postMessage("ready");
