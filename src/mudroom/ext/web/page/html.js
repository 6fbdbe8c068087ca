// Elements as values. All output goes through here, so that text is always escaped.
import { h, render, Fragment } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export { render, Fragment, h };
export { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useReducer } from "./vendor/hooks.js";
export const html = htm.bind(h);
