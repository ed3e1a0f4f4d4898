// How long answers take, since this page was opened; swaps and trials are marked where they happened.
import { milliseconds, rate } from "../format.js";
import { html, useEffect, useMemo, useState } from "../html.js";
import { Card, Empty } from "../parts.js";
import { colour, Plot } from "../plot.js";
import { trialText } from "./trial.js";

const POINTS_KEPT = 600;
const MARKS_KEPT = 20;
const SERIES = [
  { label: "p50", colour: "series-0" },
  { label: "p95", colour: "series-1", dash: [7, 3] },
  { label: "p99", colour: "series-2", dash: [2, 3] },
];

export function Delays({ endpoint, trial }) {
  const [opened] = useState(() => performance.now());
  const [points, setPoints] = useState([]);
  const [marks, setMarks] = useState([]);
  const [version, setVersion] = useState(endpoint.live_version);
  const [tried, setTried] = useState();
  const seconds = () => (performance.now() - opened) / 1000;
  const mark = (words, said) => setMarks((before) => [...before, { seconds: seconds(), words, said }].slice(-MARKS_KEPT));
  useEffect(() => {
    const window = endpoint.windows[0];
    if (window?.p50_seconds == null) return;
    setPoints((before) =>
      [
        ...before,
        [seconds(), window.p50_seconds, window.p95_seconds, window.p99_seconds, endpoint.requests_per_second],
      ].slice(-POINTS_KEPT),
    );
  }, [JSON.stringify(endpoint.windows), endpoint.requests_per_second]);
  useEffect(() => {
    if (endpoint.live_version === version) return;
    setVersion(endpoint.live_version);
    mark(`version ${endpoint.live_version}`, `Version ${endpoint.live_version} took over`);
  }, [endpoint.live_version]);
  useEffect(() => {
    if (!trial) return;
    const words = trialText(trial);
    // What was there when the page was opened is in the card; that a version is promoted is a swap.
    const isNew = trial.state === "RUNNING" ? trial.seconds < seconds() : tried && trial.state !== "PROMOTED";
    if (words !== tried && isNew)
      mark(words, `${words[0].toUpperCase()}${words.slice(1)}`);
    setTried(words);
  }, [trial?.version, trial?.state]);
  const objective = endpoint.objective_seconds;
  const plot = useMemo(
    () => ({
      data: [0, 1, 2, 3].map((column) => points.map((point) => point[column])),
      y: { format: milliseconds, range: (_, most) => [0, 1.1 * Math.max(most, objective ?? 0, 0.001)] },
      draw: (made, context) => drawMarks(made, context, objective, marks),
    }),
    [points, marks, objective],
  );
  const window = endpoint.windows[0] ?? {};
  const aside = html`<span class="muted">${rate(endpoint.requests_per_second)} requests a second</span>`;
  return html`<${Card} title="Time to answer" aside=${aside}>
    <ul class="glance small">${[
      ["p50", window.p50_seconds],
      ["p95", window.p95_seconds],
      ["p99", window.p99_seconds],
      ["objective", objective],
    ].map(
      ([name, value]) => html`
      <li key=${name}><strong class=${name !== "objective" && objective && value > objective ? "late" : ""}>
        ${milliseconds(value)}
          </strong> ${name}${name !== "objective" && objective && value > objective ? " ✕ late" : ""}</li>`,
    )}</ul>
    ${
      points.length < 2
        ? html`<${Empty} title=${points.length ? "The curve begins" : "No requests lately"}><p>
          Delays are drawn while requests come and this page is open.</p></${Empty}>`
        : html`<${Plot} name="Time to answer"
          summary=${`p95 ${milliseconds(window.p95_seconds)}, objective ${milliseconds(objective)}`} series=${SERIES}
            ...${plot} since="this page was opened" height=${240} />`
    }
    ${marks.map(
      (each) => html`<p class="note" key=${each.said + each.seconds}>
      ${each.said} ${Math.round(each.seconds)} s after this page was opened.</p>`,
    )}
  </${Card}>`;
}

function drawMarks(plot, context, objective, marks) {
  const { left, top, width, height } = plot.bbox;
  const ratio = devicePixelRatio;
  context.save();
  context.strokeStyle = colour("tier");
  context.fillStyle = colour("muted");
  context.font = `${11.5 * ratio}px system-ui, sans-serif`;
  context.lineWidth = 1.25 * ratio;
  context.textAlign = "left";
  context.textBaseline = "alphabetic";
  const line = (x1, y1, x2, y2, words, x, y) => {
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x2, y2);
    context.stroke();
    context.fillText(words, x, y);
  };
  context.setLineDash([6 * ratio, 4 * ratio]);
  if (objective != null) {
    const level = plot.valToPos(objective, "y", true);
    const begin = left + width - context.measureText("objective").width - 4 * ratio; // most marks are at the left
    line(left, level, left + width, level, "objective", begin, level - 4 * ratio);
  }
  context.setLineDash([]);
  // Names of marks that are close together stand below each other, and all end inside of the plot.
  for (const [index, each] of marks.entries()) {
    const x = plot.valToPos(each.seconds, "x", true);
    if (x < left || x > left + width) continue;
    const begin = Math.min(x + 4 * ratio, left + width - context.measureText(each.words).width);
    line(x, top, x, top + height, each.words, begin, top + (28 + 14 * (index % 3)) * ratio);
  }
  context.restore();
}
