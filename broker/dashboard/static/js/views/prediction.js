// The answer of a what-if: who moves, gains and waits, and when tiers come, as it is beside with the change.
import { duration, milliseconds, number, percent, plural, UNKNOWN } from "../format.js";
import { html } from "../html.js";
import { Card, Empty, Table } from "../parts.js";
import { link } from "../route.js";

const WIDTH = 200;

export function Prediction({ answer }) {
  const { difference, endpoints, assumptions } = answer;
  return html`<div class="cards predicted">
    <${Card} title="What would be different" wide>
      ${
        difference.length === 0
          ? html`<${Empty} title="Nothing would change by much" />`
          : html`<ul>${difference.map((sentence) => html`<li key=${sentence}>${sentence}</li>`)}</ul>`
      }
    </${Card}>
    <${Card} title="Tiers" wide aside=${html`<span class="muted">${madeOf(answer)}</span>`}>
      <${Tiers} jobs=${answer.jobs} /></${Card}>
    ${endpoints.length > 0 && html`<${Card} title="Endpoints" wide><${Endpoints} endpoints=${endpoints} /></${Card}>`}
    ${
      assumptions.length > 0 &&
      html`<${Card} title="What it assumes" wide>
        <ul>${assumptions.map((sentence) => html`<li key=${sentence}>${sentence}</li>`)}</ul></${Card}>`
    }
  </div>`;
}

function madeOf({ draws, seconds, left_out: leftOut }) {
  const without = leftOut ? `, ${plural(leftOut, "job")} left out` : "";
  return `${plural(draws, "future")} simulated in ${duration(seconds)}${without}`;
}

function Tiers({ jobs }) {
  const rows = jobs.flatMap((job) => job.tiers.map((tier) => ({ job, tier })));
  const unknown = jobs.filter((job) => job.note);
  const times = rows.flatMap(({ tier }) => [tier.present?.high, tier.changed?.high]).filter((time) => time != null);
  const furthest = Math.max(1, ...times);
  return html`${
    rows.length === 0
      ? html`<${Empty} title="No tier is ahead" />`
      : html`<${Table} caption="When tiers come, as it is and with the change"
        keys=${rows.map(({ job, tier }) => `${job.id}-${job.name}-${tier.tier}`)}
        head=${["Job", "Tier", "#As it is", "#With the change", "#Difference", "Grey as it is, blue with it", "Node"]}
        rows=${rows.map(({ job, tier }) => [
          job.id ? html`<a href=${link("jobs", job.id)}>${job.name || job.id}</a>` : job.name,
          `tier ${tier.tier} · ${number(tier.target)}`,
          span(tier.present),
          span(tier.changed),
          difference(tier.present?.seconds, tier.changed?.seconds),
          (tier.present || tier.changed) && html`<${Bands} tier=${tier} furthest=${furthest} />`,
          where(job),
        ])} />`
  }
  ${unknown.map((job) => html`<p class="muted" key=${job.id}>${job.name || job.id}: ${job.note}</p>`)}`;
}

const Endpoints = ({ endpoints }) => html`<${Table} caption="Answers in time, as it is and with the change"
  head=${["Endpoint", "#In time, as it is", "#In time, with it", "#Mean delay, as it is", "#Mean delay, with it"]}
  rows=${endpoints.map(({ name, present, changed }) => [
    name,
    percent(present.in_objective),
    percent(changed.in_objective),
    milliseconds(present.mean_seconds),
    milliseconds(changed.mean_seconds),
  ])} />`;

const span = (when) =>
  when ? `${duration(when.seconds)} (${duration(when.low)} to ${duration(when.high)})` : "unknown";

const where = ({ present, changed }) =>
  present.node_id === changed.node_id
    ? present.node_id || "waits"
    : `${present.node_id || "waits"} → ${changed.node_id || "waits"}`;

function difference(before, after) {
  if (before == null || after == null) return UNKNOWN;
  const seconds = Math.abs(after - before);
  if (seconds < 0.01 * Math.max(before, 1)) return "the same";
  const sooner = after < before;
  return html`<span class=${sooner ? "better" : "worse"}>${duration(seconds)} ${sooner ? "sooner" : "later"}</span>`;
}

/** Two bars over one axis: from the earliest to the latest time that is likely, with a mark at the median. */
function Bands({ tier, furthest }) {
  const x = (seconds) => (seconds / furthest) * (WIDTH - 4);
  const lane = (when, y, look) =>
    when &&
    html`<rect class=${look} x=${x(when.low)} y=${y} rx="2" height="8" width=${Math.max(2, x(when.high - when.low))} />
      <rect class="median" x=${x(when.seconds)} y=${y - 1} width="3" height="10" />`;
  return html`<svg width=${WIDTH} height="24" aria-hidden="true">
    ${lane(tier.present, 2, "as-is")}${lane(tier.changed, 14, "with-change")}</svg>`;
}
