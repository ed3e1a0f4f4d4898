// A job's metric over time: kept up to date between loads, and drawn with its tiers and its forecast.
import { get, path } from "./api.js";
import { withPoint } from "./decimate.js";
import { duration, isOver, number } from "./format.js";
import { useEffect, useMemo, useState } from "./html.js";
import { useEvents, useLive } from "./live.js";
import { useEvery } from "./parts.js";
import { colour, padded } from "./plot.js";

const RELOAD_SECONDS = 4;
export const CURVE_WIDTH = 800;
const [NAMES_ROOM, NAME_HEIGHT] = [96, 15];

/** The curve of a job, and a fresh forecast every few seconds while it trains; points between come from the stream. */
export function useCurve(job) {
  const [curve, setCurve] = useState({ points: [], forecast: null, loaded: false });
  const [dirty, setDirty] = useState(false);
  const loads = useLive((state) => state.loads);
  const load = async () => {
    setDirty(false);
    try {
      setCurve({ ...(await get(`${path("jobs", job.id)}/curve?width=${CURVE_WIDTH}`)), loaded: true });
    } catch (error) {
      setCurve((before) => ({ ...before, error }));
    }
  };
  useEffect(() => void load(), [job.id, isOver(job), loads]);
  useEvery(RELOAD_SECONDS, () => dirty && load());
  useEvents((events) => {
    const added = events
      .filter((event) => event.type === "progress" && event.content.job_id === job.id)
      .map(({ content }) => pointOf(job, content));
    if (!added.length) return;
    setDirty(true);
    setCurve((before) => ({
      ...before,
      points: added.reduce((points, point) => withPoint(points, point, 2 * CURVE_WIDTH), before.points),
    }));
  });
  return curve;
}

/** A point of the curve from a progress event: seconds since submission, value, epoch. */
export const pointOf = (job, { at, value, epoch }) => [
  (new Date(at) - new Date(job.submitted_at)) / 1000,
  value,
  epoch,
];

/** What the plot of a job's curve needs: its data, its ranges, and what is drawn over it. */
export function useCurvePlot(job, curve) {
  const { points, forecast } = curve;
  const ahead = isOver(job) ? [] : (forecast?.tiers ?? []).filter((each) => each.seconds != null);
  return useMemo(() => {
    const targets = job.tiers.map((tier) => tier.target);
    const span = (least, most) => {
      // As much of the future as leaves the past readable.
      const last = points.at(-1)?.[0] ?? most ?? 1;
      const until = Math.max(last * 1.02, ...ahead.map((each) => Math.min(each.high ?? each.seconds, last * 2)));
      return [Math.min(0, least ?? 0), until || 1];
    };
    return {
      data: [points.map((point) => point[0]), points.map((point) => point[1])],
      y: { span, range: (least, most) => padded(Math.min(least, ...targets), Math.max(most, ...targets)) },
      room: NAMES_ROOM,
      under: (plot, context) => drawTiers(plot, context, job),
      draw: (plot, context) => drawAhead(plot, context, job, points.at(-1), ahead),
      summary: summary(job, ahead),
    };
  }, [points, forecast, job]);
}

function summary(job, ahead) {
  const tiers = job.tiers.map((tier) => {
    if (tier.delivered_seconds != null)
      return `tier ${tier.number} at ${number(tier.target)} delivered after ${duration(tier.delivered_seconds)}`;
    const next = ahead.find((each) => each.tier === tier.number);
    return `tier ${tier.number} at ${number(tier.target)} ${next ? `expected after ${duration(next.seconds)}` : tier.state}`;
  });
  return `Latest ${number(job.latest_value)}, best ${number(job.best_value)}; ${tiers.join("; ")}.`;
}

/** Inside of the plot, with `x` and `y` from values to pixels. */
function inside(plot, context, action) {
  const { left, top, width, height } = plot.bbox;
  const ratio = devicePixelRatio;
  const [x, y] = ["x", "y"].map((scale) => (value) => plot.valToPos(value, scale, true));
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  context.lineWidth = 1.25 * ratio;
  context.font = `${11.5 * ratio}px system-ui, sans-serif`;
  action({ left, width, ratio, x, y });
  context.restore();
}

function drawTiers(plot, context, job) {
  inside(plot, context, ({ left, width, ratio, y }) => {
    for (const tier of job.tiers) tierLine(context, { left, width, ratio }, y(tier.target));
  });
  tierNames(plot, context, job.tiers);
}

const drawAhead = (plot, context, job, last, ahead) =>
  inside(plot, context, ({ ratio, x, y }) => {
    for (const each of ahead) {
      const tier = job.tiers.find(({ number }) => number === each.tier);
      if (last && tier) cone(context, { x, y, ratio }, last, each, tier);
    }
    context.fillStyle = colour("ink");
    for (const tier of job.tiers) {
      if (tier.reached_seconds == null) continue;
      context.beginPath();
      context.arc(x(tier.reached_seconds), y(tier.reached_value), 4.5 * ratio, 0, 2 * Math.PI);
      context.fill();
    }
  });

function tierLine(context, { left, width, ratio }, level) {
  context.strokeStyle = colour("tier");
  context.setLineDash([6 * ratio, 4 * ratio]);
  context.beginPath();
  context.moveTo(left, level);
  context.lineTo(left + width, level);
  context.stroke();
  context.setLineDash([]);
}

/** Names of tiers to the right of the plot, each at the end of its line; where lines are close together, one below another. */
function tierNames(plot, context, tiers) {
  const ratio = devicePixelRatio;
  const { left, top, width, height } = plot.bbox;
  const step = NAME_HEIGHT * ratio;
  const names = tiers
    .map((tier) => ({ tier, level: plot.valToPos(tier.target, "y", true) }))
    .sort((one, other) => one.level - other.level);
  names.forEach((each, n) => (each.at = Math.max(each.level, n ? names[n - 1].at + step : top)));
  names.reduceRight((below, each) => (each.at = Math.min(each.at, below)) - step, top + height);
  context.save();
  context.lineWidth = ratio;
  context.font = `${11.5 * ratio}px system-ui, sans-serif`;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.strokeStyle = colour("tier");
  context.fillStyle = colour("muted");
  for (const { tier, level, at } of names) {
    context.beginPath();
    context.moveTo(left + width, level);
    context.lineTo(left + width + 8 * ratio, at);
    context.stroke();
    context.fillText(`tier ${tier.number} · ${number(tier.target)}`, left + width + 12 * ratio, at);
  }
  context.restore();
}

/** From the last point to when a tier is expected, with the earliest and the latest time that are likely. */
function cone(context, { x, y, ratio }, last, forecast, tier) {
  const [from, level] = [[x(last[0]), y(last[1])], y(tier.target)];
  if (forecast.low != null && forecast.high != null) {
    context.globalAlpha = 0.18;
    context.fillStyle = colour("series-0");
    context.beginPath();
    context.moveTo(...from);
    context.lineTo(x(forecast.low), level);
    context.lineTo(x(forecast.high), level);
    context.fill();
    context.globalAlpha = 1;
    context.fillRect(x(forecast.low), level - 2 * ratio, x(forecast.high) - x(forecast.low), 4 * ratio);
  }
  context.strokeStyle = colour("series-0");
  context.setLineDash([2 * ratio, 3 * ratio]);
  context.beginPath();
  context.moveTo(...from);
  context.lineTo(x(forecast.seconds), level);
  context.stroke();
  context.setLineDash([]);
  context.fillStyle = colour("surface");
  context.beginPath();
  context.arc(x(forecast.seconds), level, 4 * ratio, 0, 2 * Math.PI);
  context.fill();
  context.stroke();
}
