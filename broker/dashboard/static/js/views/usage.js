// Usage: who used what, in CPU and accelerator time, and what tenants may use.
import { get } from "../api.js";
import { bytes, coreTime, duration, number, plural } from "../format.js";
import { html } from "../html.js";
import { useLive } from "../live.js";
import { Card, Empty, Facts, Loading, Part, Problem, State, Table, useLoad } from "../parts.js";
import { link } from "../route.js";

const SPANS = [
  ["24h", "A day"],
  ["7d", "A week"],
  ["30d", "30 days"],
  ["", "All"],
];

export function Usage({ query }) {
  const span = query.get("span") ?? "";
  const asked = useLoad(() => get(`usage${span ? `?since=${encodeURIComponent(span)}` : ""}`), [span]);
  return html`<h1>Usage</h1><p class="lead">CPU and accelerator time that was used, and what may be used.</p>
    <div class="tools"><div class="choice" role="group" aria-label="Since when">${SPANS.map(
      ([name, title]) => html`<a
      key=${name} href=${link("usage", "", { span: name })} aria-current=${name === span ? "true" : undefined}>${title}
        </a>`,
    )}</div></div>
    ${
      asked.error
        ? asked.error.missing
          ? html`<${Empty} title="This broker does not add up usage yet" />`
          : html`<${Problem} error=${asked.error} again=${asked.again} />`
        : !asked.value
          ? html`<${Loading} what="usage" />`
          : html`<${Sums} usage=${asked.value} />`
    }
    <${Quotas} />`;
}

function Quotas() {
  const { value, error, again } = useLoad(() => get("quotas"), []);
  if (error) return html`<${Problem} error=${error} again=${again} />`;
  if (!value) return html`<${Loading} what="quotas" />`;
  return html`<div class="cards">
    ${value.map((quota) => html`<${Quota} key=${quota.tenant} quota=${quota} />`)}</div>`;
}

function Quota({ quota }) {
  const time = (hours) => coreTime(3600 * hours);
  const row = (name, used, most, told) => [
    name,
    told(used),
    most == null ? "no limit" : told(most),
    most == null ? undefined : told(Math.max(0, most - used)),
    most == null ? undefined : html`<${Part} part=${most ? used / most : 1} />`,
  ];
  const { classes, fair_factor: fair } = quota;
  return html`<${Card} title=${`Quota of ${quota.tenant}`} wide>
    <${Table} caption=${`What ${quota.tenant} may use`} head=${["What", "#Used", "#Allowed", "#Left", "Used part"]} rows=${[
      row("Unfinished jobs", quota.active_jobs, quota.max_active_jobs, number),
      row("CPU time", quota.core_hours, quota.max_core_hours, time),
      row("Accelerator time", quota.accelerator_hours, quota.max_accelerator_hours, time),
      row("Projects", quota.projects_bytes, quota.max_projects_bytes, bytes),
      row("Files that jobs left", quota.files_bytes, quota.max_files_bytes, bytes),
    ]} />
    <${Facts} facts=${[
      ["Used time", `after ${duration(quota.half_life_seconds)} half of it counts`],
      [
        "Holds now",
        `${plural(quota.cpu_cores, "core")}, ${bytes(quota.memory_bytes)}, ${plural(quota.accelerators, "accelerator")}`,
      ],
      ["Weight", `${number(quota.weight)}${fair === 1 ? "" : `, × ${number(fair, 3)} by what all have used`}`],
      ["Priority classes", classes.map((each) => `${each.name} (${each.value})`).join(", ") || "none"],
      ["Set by", quota.is_set ? "the operator" : "tenants.toml"],
    ]} />
  </${Card}>`;
}

const byCpu = (rows) => [...rows].sort((one, other) => other.cpu_seconds - one.cpu_seconds);

function Sums({ usage }) {
  const { tenants, jobs, endpoints } = usage;
  const sees = useLive((state) => Boolean(state.session?.tenant)); // an operator has no page of a job or an endpoint
  if (!tenants.length && !endpoints.length) return html`<${Empty} title="Nothing was used in this time" />`;
  const most = Math.max(...tenants.map((row) => row.cpu_seconds), 1e-9);
  const about = jobs.some((job) => job.approximate);
  return html`<div class="cards">
    ${
      tenants.length > 0 &&
      html`<${Card} title="Tenants" wide><${Table} caption="Usage by tenant"
        head=${["Tenant", "#Jobs", "#CPU time", "#Core-hours", "#Accelerator time", "CPU beside the others"]}
      rows=${byCpu(tenants).map((row) => [
        row.tenant,
        row.jobs,
        coreTime(row.cpu_seconds),
        hours(row.cpu_seconds),
        coreTime(row.accelerator_seconds),
        html`<${Part} part=${row.cpu_seconds / most} />`,
      ])} /></${Card}>`
    }
    <${Card} title="Jobs" wide aside=${html`<span class="muted">${usage.cut ? "of the latest jobs only" : ""}</span>`}>
      <${Table} caption="Usage by job, the most first"
        head=${["Job", "Tenant", "State", "#CPU time", "#Core-hours", "#Accelerator time"]}
        rows=${byCpu(jobs).map((row) => [
          html`${sees ? html`<a href=${link("jobs", row.id)}>${row.name || row.id}</a>` : row.name} <code class="muted">${row.id}</code>`,
          row.tenant,
          html`<${State} state=${row.state} />`,
          `${row.approximate ? "≈ " : ""}${coreTime(row.cpu_seconds)}`,
          hours(row.cpu_seconds),
          coreTime(row.accelerator_seconds),
        ])} />
      ${about && html`<p class="muted">≈ of jobs that began before: less what their last report before said.</p>`}
        </${Card}>
    ${
      endpoints.length > 0 &&
      html`<${Card} title="Endpoints" wide aside=${html`<span class="muted">since the broker began</span>`}>
      <${Table} caption="Usage by endpoint" head=${["Endpoint", "Tenant", "#Requests", "#CPU time"]}
        rows=${byCpu(endpoints).map((row) => [
          sees ? html`<a href=${link("endpoints", row.name)}>${row.name}</a>` : row.name,
          row.tenant,
          number(row.requests),
          coreTime(row.cpu_seconds),
        ])} /></${Card}>`
    }
  </div>`;
}

const hours = (seconds) => (seconds / 3600).toFixed(seconds < 36 ? 4 : 2);
