// What was predicted as things were, and what then came: of a job, and by policy.
import { get } from "../api.js";
import { clock, duration, percent, UNKNOWN } from "../format.js";
import { html } from "../html.js";
import { Card, Loading, Table, useLoad } from "../parts.js";
import { Missing } from "./job_parts.js";

/** When a job's tiers were predicted to be reached, beside when they were. */
export function JobPredictions({ job }) {
  const states = job.tiers.map((tier) => tier.state).join();
  const asked = useLoad(() => get(`predictions?job=${encodeURIComponent(job.id)}`), [job.id, job.state, states]);
  const predictions = asked.value?.predictions;
  if (predictions?.length === 0) return null;
  return html`<${Card} title="Predicted, and what came" wide folds>
    ${
      asked.error
        ? html`<${Missing} error=${asked.error} what="predictions" />`
        : !predictions
          ? html`<${Loading} what="predictions" />`
          : html`<div class="tall"><${Table} caption="When tiers were predicted, and when they came"
              keys=${predictions.map((each) => `${each.tier} ${each.made_at}`)}
              head=${["Tier", "Predicted at", "#Predicted", "#Came after", "#Error", "In the band", "Policy"]}
              rows=${predictions.map((each) => [
                `tier ${each.tier}`,
                clock(each.made_at),
                `${duration(each.told.seconds)} (${duration(each.told.low)} to ${duration(each.told.high)})`,
                each.came_seconds == null ? WAITS[each.state] : duration(each.came_seconds),
                error(each),
                each.came_seconds == null ? UNKNOWN : within(each) ? "✓ yes" : "✕ no",
                each.policy,
              ])} /></div>`
    }
  </${Card}>`;
}

const WAITS = { open: "not yet", never: "never" };

const within = ({ told, came_seconds: came }) => told.low <= came && came <= told.high;

function error({ told, came_seconds: came }) {
  if (!came) return UNKNOWN;
  const off = told.seconds / came - 1;
  return `${off < 0 ? "−" : "+"}${Math.round(100 * Math.abs(off))} %`;
}

/** How far off predictions were, by policy; `turn` says when to ask again. */
export function PredictionErrors({ turn }) {
  const asked = useLoad(() => get("predictions"), [turn]);
  const accuracy = asked.value?.accuracy;
  if (!accuracy?.length) return null;
  return html`<${Card} title="How far off predictions were" wide>
    <${Table} caption="How far off predictions were, by policy" keys=${accuracy.map((each) => each.policy)}
      head=${["Policy", "#Came", "#Never came", "#Median error", "#In the 80\u00a0% band"]}
      rows=${accuracy.map((each) => [
        each.policy,
        each.came,
        each.never,
        percent(each.median_error),
        percent(each.in_band),
      ])} /></${Card}>`;
}
