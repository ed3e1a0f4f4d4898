// uPlot as a component: follows the width and the colour scheme, can be read by keyboard, and has a table beside it.
import { html, useEffect, useMemo, useRef, useState } from "./html.js";
import { duration, number, UNKNOWN } from "./format.js";
import { Table } from "./parts.js";

const TABLE_ROWS = 25;
const LABEL_ROOM = 32; // half of the widest time, which may stand below the last point
const [MINUTE, HOUR, DAY] = [60, 3600, 86400];
// Between two times of an axis, in seconds: those that people count by.
const STEPS = [
  ...[0.001, 0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30],
  ...[1, 2, 5, 10, 20, 30].map((count) => count * MINUTE),
  ...[1, 2, 6, 12].map((count) => count * HOUR),
  ...[1, 2, 5, 10, 30, 100, 365].map((count) => count * DAY),
];
const dark = matchMedia("(prefers-color-scheme: dark)");

/** A colour of the style sheet, for the canvas. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const DASHED_MOST = 20;

/**
 * The look of one of several series: five colours that the colour-blind tell apart, each with four kinds of dashes.
 * Nobody tells more than that apart, and dashes take a browser longer than all the rest.
 */
export const seriesLook = (index, count) => ({
  colour: `series-${index % 5}`,
  dash: count > DASHED_MOST ? [] : [[], [8, 4], [2, 3], [10, 3, 2, 3]][Math.floor(index / 5) % 4],
  width: count > DASHED_MOST ? 1 : 2,
});

/**
 * @param {{name: string, summary: string, series: {label: string, colour: string, dash?: number[], stepped?: boolean,
 *   points?: boolean}[], data: number[][], height?: number, y?: {range?: function, format?: function}, under?: function,
 *   draw?: function, x?: function, since?: string, room?: number}} props `data` as uPlot's: the x values, then one array
 *   a series; `under(plot, context)` draws before the series, `draw` after them; `since` names what the time is counted
 *   from; `room` is what they need to the right of it, in pixels.
 */
export function Plot({ name, summary, series, data, height = 260, y = {}, under, draw, x = duration, since = "submission", room }) {
  const host = useRef(null);
  const plot = useRef(null);
  const latest = useRef({});
  latest.current = { data, under, draw, y, x, since, room };
  const [scheme, setScheme] = useState(dark.matches);
  const [cursor, setCursor] = useState(-1);
  const shape = JSON.stringify(series.map(({ label, colour, dash, stepped }) => [label, colour, dash, stepped]));

  useEffect(() => {
    const follow = () => setScheme(dark.matches);
    dark.addEventListener("change", follow);
    return () => dark.removeEventListener("change", follow);
  }, []);

  useEffect(() => {
    const made = new window.uPlot(options(series, height, host.current, latest), latest.current.data, host.current);
    plot.current = made;
    const resize = new ResizeObserver(([entry]) => {
      const width = Math.floor(entry.contentRect.width);
      if (width > 0 && width !== made.width) made.setSize({ width, height });
    });
    resize.observe(host.current);
    return () => {
      resize.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, scheme, height]);

  const drawn = useRef(null);
  useEffect(() => {
    if (drawn.current !== data) plot.current?.setData(data);
    else plot.current?.redraw(false);
    drawn.current = data;
  }, [data, draw]);

  const count = data[0].length;
  const point = Math.min(cursor, count - 1);
  latest.current.onCursor = (index) => setCursor(index ?? -1);
  const readPoint = (event) => {
    const made = plot.current;
    made?.setCursor({
      left: made.valToPos(data[0][Number(event.target.value)], "x"),
      top: made.bbox.height / devicePixelRatio / 2,
    });
  };
  const format = y.format ?? number;
  return html`<figure class="plot">
    <div class="plot-canvas" ref=${host} role="img" aria-label=${`${name}. ${summary}`}
      style=${{ height: `${height}px` }}></div>
    ${series.length > 1 && html`<${Legend} series=${series} />`}
    <figcaption class="plot-reader">
      ${
        count > 1 &&
        html`<input type="range" min="0" max=${count - 1} value=${Math.max(0, point)} aria-label=${`Read ${name}`}
          title="Move it to read the values of a point"
        aria-valuetext=${point >= 0 ? reading(series, data, point, x, format) : "no point yet"} onInput=${readPoint} />`
      }
      <output>${point >= 0 ? reading(series, data, point, x, format) : ""}</output>
      <${Rows} name=${name} series=${series} data=${data} x=${x} format=${format} />
    </figcaption>
  </figure>`;
}

const Legend = ({ series }) =>
  html`<ul class="legend">${series.map(
    (each) => html`<li key=${each.label}>
  <svg width="26" height="8" aria-hidden="true"><line x1="1" x2="25" y1="4" y2="4" stroke-width="2.5"
    style=${{ stroke: `var(--${each.colour})` }} stroke-dasharray=${(each.dash ?? []).join(" ")} /></svg>${each.label}
      </li>`,
  )}</ul>`;

function reading(series, data, index, x, format) {
  const values = series.map((each, n) => `${series.length > 1 ? `${each.label} ` : ""}${format(data[n + 1][index])}`);
  return `${x(data[0][index])}: ${values.join(", ")}`;
}

/** The same as numbers, thinned: what a canvas shows nobody can read aloud. */
function Rows({ name, series, data, x, format }) {
  const [open, setOpen] = useState(false);
  const rows = useMemo(() => {
    if (!open) return [];
    const count = data[0].length;
    const step = Math.max(1, Math.ceil(count / TABLE_ROWS));
    const picked = [...Array(count).keys()].filter((index) => index % step === 0 || index === count - 1);
    return picked.map((index) => [
      x(data[0][index]),
      ...series.map((_, n) => (data[n + 1][index] == null ? UNKNOWN : format(data[n + 1][index]))),
    ]);
  }, [open, data]);
  return html`<details class="plot-table" onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>Table</summary>
    ${
      open &&
      html`<${Table} caption=${`${name}, at most ${TABLE_ROWS + 1} of its points`}
      head=${["Time", ...series.map((each) => `#${each.label}`)]} rows=${rows} />`
    }
  </details>`;
}

function options(series, height, host, latest) {
  const axis = {
    stroke: colour("muted"),
    font: "12px system-ui, sans-serif",
    grid: { stroke: colour("line"), width: 1 },
    ticks: { show: false },
  };
  return {
    width: Math.max(200, host.clientWidth),
    height,
    legend: { show: false },
    padding: [null, latest.current.room ?? LABEL_ROOM, null, null],
    cursor: { drag: { x: true, y: false }, points: { size: 6 } },
    scales: {
      x: {
        time: false,
        range: (_, least, most) =>
          latest.current.y.span?.(least, most) ?? [least ?? 0, most === least ? (least ?? 0) + 1 : most],
      },
      y: { range: (_, least, most) => (latest.current.y.range ?? padded)(least ?? 0, most ?? 1) },
    },
    axes: [
      {
        ...axis,
        label: `time since ${latest.current.since}`,
        labelFont: axis.font,
        labelSize: 20,
        space: 90,
        size: 30,
        incrs: STEPS,
        values: (_, ticks) => ticks.map((tick) => latest.current.x(tick)),
      },
      { ...axis, size: 62, values: (_, ticks) => ticks.map((tick) => (latest.current.y.format ?? number)(tick)) },
    ],
    series: [
      {},
      ...series.map((each) => ({
        label: each.label,
        stroke: colour(each.colour),
        width: each.width ?? 2,
        dash: each.dash?.length ? each.dash : undefined,
        spanGaps: true,
        points: { show: each.points ?? false },
        ...(each.stepped ? { paths: window.uPlot.paths.stepped({ align: 1 }) } : {}),
      })),
    ],
    hooks: {
      setCursor: [(made) => latest.current.onCursor(made.cursor.idx)],
      drawAxes: [(made) => latest.current.under?.(made, made.ctx)],
      draw: [(made) => latest.current.draw?.(made, made.ctx)],
    },
  };
}

/** A range with some room above and below. */
export function padded(least, most) {
  const room = (most - least || Math.abs(most) || 1) * 0.08;
  return [least - room, most + room];
}
