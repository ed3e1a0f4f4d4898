// One job: how it learns, what it has, why, and what can be done about it.
import { get, path } from "../api.js";
import { useCurve, useCurvePlot } from "../curve.js";
import { bytes, clock, coreTime, duration, isOver, jobName, number, percent, plural, UNKNOWN } from "../format.js";
import { html, useEffect } from "../html.js";
import { keepJobs, useLive } from "../live.js";
import { Card, Empty, Facts, jobTime, Loading, Problem, Reason, shareText, State, Table, Tiers, useLoad } from "../parts.js";
import { Plot } from "../plot.js";
import { link } from "../route.js";
import { Decisions } from "./decisions.js";
import { JobActions } from "./job_actions.js";
import { Files, Lineage, Log, Runs } from "./job_parts.js";
import { Shares } from "./job_shares.js";
import { JobPredictions } from "./predictions.js";

export function JobPage({ id }) {
  const job = useLive((state) => state.jobs.get(id));
  const asked = useLoad(() => get(path("jobs", id)), [id]);
  useEffect(() => {
    if (asked.value) keepJobs([asked.value]);
  }, [asked.value]);
  if (!job && asked.error) {
    return html`<h1>Job ${id}</h1><${Problem} error=${asked.error} again=${asked.again} /><p><a href=${link("jobs")}>
      All jobs</a></p>`;
  }
  return job ? html`<${Job} job=${job} />` : html`<h1>Job ${id}</h1><${Loading} what="the job" />`;
}

function Job({ job }) {
  return html`<div class="title">
      <div><p class="crumb"><a href=${link("jobs")}>Jobs</a></p><h1>${jobName(job)}</h1>
        <p class="subtitle"><${State} state=${job.state} /> <code>${job.id}</code> <span class="muted">
          ${isOver(job) ? "" : job.reason}</span></p></div>
      <${JobActions} job=${job} />
    </div>
    ${isOver(job) && html`<${Ended} job=${job} />`}
    <div class="columns broad">
      <div>
        <${Curve} job=${job} />
        <${Shares} job=${job} />
      </div>
      <div>
        <${Card} title="About it"><${About} job=${job} /></${Card}>
        <${Runs} job=${job} />
        <${Files} job=${job} />
      </div>
      <${Card} title="Tiers and deliveries" wide><${Deliveries} job=${job} /></${Card}>
      <${JobPredictions} job=${job} />
      <${Decisions} path=${path("jobs", job.id)} reason=${job.share?.reason} />
      <${Log} job=${job} />
      <${Lineage} job=${job} />
    </div>`;
}

const ENDED = {
  completed: "",  // the reason says it
  missed: "It ended before every tier was reached. What it delivered stays.",
  failed: "Its output below says how it ended; Retry goes on from its last checkpoint. What it delivered stays.",
  cancelled: "Retry goes on from its last checkpoint. What it delivered stays.",
};

/** How it ended, why, and what can be done now. */
const Ended = ({ job }) => html`<p class=${`note ended-${job.state}`}>
  <strong>${job.state} after ${jobTime(job)}${job.reason && job.reason !== job.state ? `: ${job.reason}` : ""}.</strong> ${ENDED[job.state]}
  ${job.state === "missed" && html` With more epochs it goes on: <code>tiercel resume ${job.id} --max-epochs N</code>.`}</p>`;

function Curve({ job }) {
  const curve = useCurve(job);
  const plot = useCurvePlot(job, curve);
  const next = job.tiers.find((tier) => tier.state === "pending");
  const expected = isOver(job) ? null : curve.forecast?.tiers?.find((each) => each.tier === next?.number);
  const cut = curve.decimated ? ` · ${curve.total.toLocaleString("en")} points, drawn with ${curve.points.length}` : "";
  const aside = job.best_value != null && html`<span class="muted">best ${number(job.best_value)} · epoch ${job.epoch}${cut}</span>`;
  return html`<${Card} title=${job.spec.metric} aside=${aside} id="h-curve">
    ${curve.error && html`<${Problem} error=${curve.error} />`}
    ${!curve.loaded && !curve.error && html`<${Loading} what="the curve" />`}
    ${
      curve.loaded &&
      (curve.points.length === 0
        ? html`<${Empty} title="Nothing reported yet"><p>
          The curve begins with the script’s first report of “${job.spec.metric}”.</p></${Empty}>`
        : html`<${Plot} name=${`${job.spec.metric} of ${jobName(job)}`} ...${plot} height=${300}
          series=${[{ label: job.spec.metric, colour: "series-0", points: curve.points.length < 40 }]} />`)
    }
    ${next && html`<p class="expect">${expectation(job, next, expected)}</p>`}
  </${Card}>`;
}

const LEAST_DOUBT = 0.05;

function expectation(job, next, expected) {
  const name = `Tier ${next.number} (${number(next.target)})`;
  if (isOver(job)) return `${name} was not reached.`;
  if (expected?.seconds == null) return `${name}: too little is known yet to say when.`;
  const gone = (Date.now() - new Date(job.submitted_at)) / 1000;
  const left = (seconds) => duration(Math.max(0, seconds - gone));
  const band =
    expected.low != null && expected.high != null ? `, between ${left(expected.low)} and ${left(expected.high)}` : "";
  const never = expected.never >= LEAST_DOUBT ? `; with a chance of ${percent(expected.never)} never` : "";
  return html`${name} is expected in <strong>${left(expected.seconds)}</strong>${band}${never}.`;
}

function About({ job }) {
  const { spec } = job;
  const { cpu_cores, memory_bytes, accelerators } = spec.resources;
  const program = spec.command.join(" ") || spec.module || spec.script?.name || spec.image;
  return html`<${Facts} facts=${[
    ["Tiers", html`<${Tiers} job=${job} />`],
    ["Share", isOver(job) ? "" : shareText(job.share)],
    ["Why", isOver(job) ? "" : job.share?.reason],
    ["Node", job.node_id],
    [
      "Endpoint",
      html`<a href=${link("endpoints", spec.endpoint)}>${spec.endpoint}</a>
        ${spec.variant ? `, variant ${spec.variant}` : ""}`,
    ],
    ["Program", program && html`<code>${program}${spec.arguments.length ? ` ${spec.arguments.join(" ")}` : ""}</code>`],
    [
      "Asks for",
      [plural(cpu_cores, "core"), bytes(memory_bytes), accelerators ? plural(accelerators, "accelerator") : ""]
        .filter(Boolean)
        .join(", "),
    ],
    ["Priority", spec.priority_class ? `${spec.priority}, class ${spec.priority_class}` : String(spec.priority)],
    ["Tenant", job.tenant],
    ["Submitted", clock(job.submitted_at)],
    [isOver(job) ? "Took" : "So far", jobTime(job)],
    ["CPU time", coreTime(job.cpu_seconds)],
    ["Accelerator time", job.accelerator_seconds ? coreTime(job.accelerator_seconds) : ""],
    [
      "Labels",
      Object.entries(spec.labels)
        .map(([name, value]) => `${name}=${value}`)
        .join(", "),
    ],
  ]} />`;
}

const Deliveries = ({
  job,
}) => html`<${Table} caption="Tiers and what became of them" keys=${job.tiers.map((tier) => tier.number)}
  head=${["Tier", "#Target", "State", "#Reported", "#Measured", "#Reached after", "#Delivered after", "#Version", "Deadline", "Note"]}
  rows=${job.tiers.map((tier, index) => [
    `tier ${tier.number}`,
    number(tier.target),
    isOver(job) && tier.state === "pending" ? "not reached" : tier.state,
    number(tier.reached_value),
    number(tier.delivered_value),
    duration(tier.reached_seconds),
    duration(tier.delivered_seconds),
    tier.version ? html`<a href=${link("endpoints", job.spec.endpoint)}>${tier.version}</a>` : UNKNOWN,
    tier.deadline_seconds == null ? UNKNOWN : deadline(job, tier, job.spec.tiers[index]?.hard),
    tier.reason ? html`<${Reason} text=${tier.reason} />` : UNKNOWN,
  ])} />`;

function deadline(job, tier, hard) {
  const gone = isOver(job) ? Infinity : (Date.now() - new Date(job.submitted_at)) / 1000;
  const missed = (tier.delivered_seconds ?? gone) > tier.deadline_seconds;
  const kept = missed ? " ✕ missed" : tier.delivered_seconds == null ? "" : " ✓ kept";
  return `${duration(tier.deadline_seconds)}${hard ? ", hard" : ""}${kept}`;
}
