// Compare: several jobs' curves in one plot, with what differs between them below.
import { get, path } from "../api.js";
import { duration, isOver, jobName, number } from "../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { keepJobs, useEvents, useLive } from "../live.js";
import { Card, Empty, JobLink, Loading, Problem, State, Table, useEvery, useLoad } from "../parts.js";
import { Plot, seriesLook } from "../plot.js";
import { go, link } from "../route.js";
import { pointOf } from "../curve.js";
import { alignCurves, withPoint } from "../decimate.js";

const COLUMNS = 400;
const POINTS_DRAWN = 30_000; // more of them hold up the browser
const REDRAW_SECONDS = 0.5;

export function Compare({ query }) {
  const ids = (query.get("jobs") ?? "").split(",").filter(Boolean);
  return html`<h1>Compare</h1>
    <${Choose} ids=${ids} />
    ${
      ids.length === 0
        ? html`<${Empty} title="Nothing chosen yet"><p>Add jobs above, or tick them in <a href=${link("jobs")}>
          the list of jobs</a>.</p></${Empty}>`
        : html`<${Compared} key=${ids.join()} ids=${ids} />`
    }`;
}

const address = (ids) => link("compare", "", { jobs: ids.join(",") });

function Choose({ ids }) {
  const asked = useLoad(() => get("jobs?limit=100"), []);
  const jobs = (asked.value?.jobs ?? []).filter((job) => !ids.includes(job.id));
  return html`<div class="tools">
    <label>Add a job <select value=""
      onChange=${(event) => event.target.value && go(address([...ids, event.target.value]))}>
      <option value="">choose…</option>
      ${jobs.map(
        (job) => html`<option key=${job.id} value=${job.id}>${jobName(job)} · ${job.id} · ${job.state}
        </option>`,
      )}
    </select></label>
    ${ids.length > 0 && html`<a class="button" href=${link("compare")}>Clear</a>`}
  </div>`;
}

function Compared({ ids }) {
  const asked = useLoad(async () => {
    const found = await Promise.allSettled(
      ids.map((id) => Promise.all([get(path("jobs", id)), get(`${path("jobs", id)}/curve?width=${COLUMNS}`)])),
    );
    const good = found.filter((each) => each.status === "fulfilled").map((each) => each.value);
    if (!good.length) throw found[0].reason;
    keepJobs(good.map(([job]) => job));
    return {
      jobs: good.map(([job]) => job),
      curves: new Map(good.map(([job, curve]) => [job.id, curve.points])),
      lost: ids.length - good.length,
    };
  }, [ids.join()]);
  if (asked.error) return html`<${Problem} error=${asked.error} again=${asked.again} />`;
  if (!asked.value) return html`<${Loading} what="the curves" />`;
  return html`${asked.value.lost > 0 && html`<p class="note">${asked.value.lost} of these jobs could not be found.</p>`}
    <${Curves} ...${asked.value} ids=${ids} />`;
}

function Curves({ jobs: first, curves, ids }) {
  const live = useLive((state) => state.jobs);
  const jobs = first.map((job) => live.get(job.id) ?? job);
  const kept = useRef(new Map(curves));
  const [turn, setTurn] = useState(0);
  const changed = useRef(false);
  useEvents((events) => {
    for (const { type, content } of events) {
      const job = type === "progress" && jobs.find((each) => each.id === content.job_id);
      if (!job) continue;
      kept.current.set(job.id, withPoint(kept.current.get(job.id), pointOf(job, content), 2 * COLUMNS));
      changed.current = true;
    }
  });
  useEvery(REDRAW_SECONDS, () => {
    if (changed.current) setTurn((count) => count + 1);
    changed.current = false;
  });
  useEffect(() => {
    kept.current = new Map(curves);
  }, [curves]);
  const metrics = [...new Set(jobs.map((job) => job.spec.metric))];
  const names = labels(jobs);
  return html`<div class="cards">${metrics.map(
    (metric) => html`<${MetricPlot} key=${metric} metric=${metric} names=${names}
      jobs=${jobs.filter((job) => job.spec.metric === metric)} curves=${kept.current} turn=${turn} />`,
  )}
    <${Card} title="Results" wide><${Results} jobs=${jobs} names=${names} ids=${ids} /></${Card}>
    <${Card} title="Parameters that differ" wide><${Parameters} jobs=${jobs} names=${names} /></${Card}></div>`;
}

const labels = (jobs) => {
  const count = (name) => jobs.filter((job) => jobName(job) === name).length;
  return new Map(jobs.map((job) => [job.id, count(jobName(job)) > 1 ? `${jobName(job)} ${job.id}` : jobName(job)]));
};

function MetricPlot({ metric, jobs, curves, names, turn }) {
  const data = useMemo(
    () =>
      alignCurves(
        jobs.map((job) => curves.get(job.id) ?? []),
        Math.min(COLUMNS, Math.ceil(POINTS_DRAWN / 2 / jobs.length)),
      ),
    [turn, curves, jobs.length],
  );
  const series = jobs.map((job, index) => ({ label: names.get(job.id), ...seriesLook(index, jobs.length) }));
  const best = jobs.map((job) => `${names.get(job.id)} best ${number(job.best_value)}`).join(", ");
  return html`<${Card} title=${metric} wide>
    ${
      data[0].length === 0
        ? html`<${Empty} title="Nothing reported yet" />`
        : html`<${Plot} name=${`${metric} of ${jobs.length} jobs`} summary=${best} series=${series} data=${data}
          height=${340} />`
    }
  </${Card}>`;
}

const Results = ({ jobs, names, ids }) => html`<${Table} caption="Results" keys=${jobs.map((job) => job.id)}
  head=${["Job", "State", "Metric", "#Best", "#Latest", "#Epoch", "#First tier after", "#Last tier after", "#CPU time", "Shown"]}
  rows=${jobs.map((job) => [
    html`<${JobLink} job=${job} /> <span class="muted">${names.get(job.id) === jobName(job) ? "" : job.id}</span>`,
    html`<${State} state=${job.state} />`,
    job.spec.metric,
    number(job.best_value),
    number(job.latest_value),
    job.epoch,
    duration(job.tiers[0]?.delivered_seconds),
    duration(job.tiers.at(-1)?.delivered_seconds),
    `${duration(job.cpu_seconds)}${isOver(job) ? "" : " so far"}`,
    html`<button type="button" class="quiet" aria-label=${`Take out ${names.get(job.id)}`}
      onClick=${() => go(address(ids.filter((id) => id !== job.id)))}>Take out</button>`,
  ])} />`;

function Parameters({ jobs, names }) {
  return useMemo(() => parameterTable(jobs, names), [jobs.map((job) => `${job.id} ${job.spec.priority}`).join()]);
}

function parameterTable(jobs, names) {
  const described = jobs.map(parametersOf);
  const all = [...new Set(described.flatMap((each) => Object.keys(each)))].sort();
  const differ = all.filter((name) => new Set(described.map((each) => each[name] ?? "")).size > 1);
  if (!differ.length)
    return html`<${Empty}
      title=${jobs.length > 1 ? "They are the same in everything" : "Add another job to see what differs"} />`;
  return html`<${Table} caption="Parameters that differ" head=${["Parameter", ...jobs.map((job) => names.get(job.id))]}
    rows=${differ.map((name) => [html`<code>${name}</code>`, ...described.map((each) => each[name])])} />`;
}

const IDENTITY = new Set(["name", "labels", "tiers", "script", "project"]);

/** Fields of the spec by their paths, and arguments such as --rate 0.1 by their names. */
function parametersOf({ spec }) {
  const found = {
    tiers: spec.tiers.map((tier) => tier.target).join(", "),
    ...flags([...spec.command.slice(1), ...spec.arguments]),
  };
  for (const [name, value] of Object.entries(spec))
    if (!IDENTITY.has(name) && name !== "arguments" && name !== "command") flatten(name, value, found);
  found.program = spec.script?.name ?? spec.project?.sha256 ?? spec.module;
  return found;
}

function flatten(name, value, found) {
  if (value === null || value === "" || value === undefined) return;
  if (Array.isArray(value))
    found[name] = value.map((item) => (typeof item === "object" ? JSON.stringify(item) : item)).join(", ");
  else if (typeof value === "object")
    for (const [key, item] of Object.entries(value)) flatten(`${name}.${key}`, item, found);
  else found[name] = String(value);
}

function flags(words) {
  const found = {};
  words.forEach((word, index) => {
    if (!word.startsWith("--")) return;
    const [name, value] = word.split(/=(.*)/s);
    const next = words[index + 1];
    found[name] = value ?? (next !== undefined && !next.startsWith("--") ? next : "yes");
  });
  return found;
}
