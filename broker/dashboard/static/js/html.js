// Preact and htm under the names that all modules use: html`<p>…</p>` makes elements without a build step.
import { h, render } from "../vendor/preact-11.2.0.js";
import htm from "../vendor/htm-3.1.1.js";

export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact-hooks-11.2.0.js";
export { render };
export const html = htm.bind(h);
