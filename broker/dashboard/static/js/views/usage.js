// Usage: who used what, in core-hours and accelerator-hours.
import { get } from "../api.js";
import { coreTime, number } from "../format.js";
import { html } from "../html.js";
import { Card, Empty, Loading, Problem, Table, useLoad } from "../parts.js";
import { link } from "../route.js";

const SPANS = [["1d", "A day", 86400], ["7d", "A week", 7 * 86400], ["30d", "30 days", 30 * 86400], ["", "All", null]];

export function Usage({ query }) {
  const span = query.get("span") ?? "";
  const seconds = SPANS.find(([name]) => name === span)?.[2];
  const asked = useLoad(() => get(`usage${seconds ? `?since=${encodeURIComponent(new Date(Date.now() - seconds * 1000).toISOString())}` : ""}`), [span]);
  return html`<h1>Usage</h1><p class="lead">CPU and accelerator time that was used, by tenant and by job.</p>
    <div class="tools"><div class="choice" role="group" aria-label="Since when">${SPANS.map(([name, title]) => html`<a key=${name} href=${link("usage", "", { span: name })} aria-current=${name === span ? "true" : undefined}>${title}</a>`)}</div></div>
    ${asked.error ? (asked.error.missing ? html`<${Empty} title="This broker does not add up usage yet" />` : html`<${Problem} error=${asked.error} again=${asked.again} />`)
      : !asked.value ? html`<${Loading} what="usage" />` : html`<${Sums} usage=${asked.value} />`}`;
}

const cpu = (row) => row.core_seconds ?? row.cpu_seconds ?? 0;

function Sums({ usage }) {
  const jobs = [...(usage.jobs ?? [])].sort((one, other) => cpu(other) - cpu(one));
  const tenants = usage.tenants ?? byTenant(jobs);
  if (!tenants.length) return html`<${Empty} title="Nothing was used in this time" />`;
  const most = Math.max(...tenants.map(cpu), 1e-9);
  return html`<div class="cards">
    <${Card} title="Tenants" wide><${Table} caption="Usage by tenant" head=${["Tenant", "#Jobs", "#CPU time", "#Core-hours", "#Accelerator time", "CPU, beside the others"]}
      rows=${[...tenants].sort((one, other) => cpu(other) - cpu(one)).map((row) => [row.tenant, row.jobs ?? jobs.filter((job) => job.tenant === row.tenant).length, coreTime(cpu(row)),
        number(cpu(row) / 3600), coreTime(row.accelerator_seconds ?? 0), html`<span class="part"><span class="part-fill" style=${{ width: `${(100 * cpu(row)) / most}%` }}></span></span>`])} /></${Card}>
    <${Card} title="Jobs" wide><${Table} caption="Usage by job, the most first" head=${["Job", "Tenant", "State", "#CPU time", "#Core-hours", "#Accelerator time"]}
      rows=${jobs.map((row) => [html`<a href=${link("jobs", row.job_id ?? row.id)}>${row.name || row.job_id || row.id}</a>`, row.tenant, row.state ?? undefined, coreTime(cpu(row)), number(cpu(row) / 3600), coreTime(row.accelerator_seconds ?? 0)])} /></${Card}>
  </div>`;
}

function byTenant(jobs) {
  const sums = new Map();
  for (const job of jobs) {
    const sum = sums.get(job.tenant) ?? { tenant: job.tenant, core_seconds: 0, accelerator_seconds: 0, jobs: 0 };
    sums.set(job.tenant, { ...sum, core_seconds: sum.core_seconds + cpu(job), accelerator_seconds: sum.accelerator_seconds + (job.accelerator_seconds ?? 0), jobs: sum.jobs + 1 });
  }
  return [...sums.values()];
}
