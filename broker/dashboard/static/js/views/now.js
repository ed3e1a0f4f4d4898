// Now: what each machine does, what trains, what answers, what is pending and why.
import { post } from "../api.js";
import { clock, isIdle, isOver, jobName, milliseconds, number, percent, plural, rate } from "../format.js";
import { html } from "../html.js";
import { change, useLive } from "../live.js";
import { Action, Card, Empty, JobLink, jobTime, Loading, Reason, shareText, State, Table, Tiers } from "../parts.js";
import { link } from "../route.js";
import { NodeCard } from "./node_card.js";

const MANY = 8; // more rows scroll by themselves, so that what comes below them is not far away

export function Now() {
  const nodes = useLive((state) => state.nodes);
  const endpoints = useLive((state) => state.endpoints);
  const jobs = useLive((state) => state.jobs);
  const loaded = useLive((state) => state.jobsLoaded);
  const status = useLive((state) => state.status);
  const sees = useLive((state) => Boolean(state.session?.tenant)); // an operator sees no jobs, and must not hear of none
  if (!loaded || !nodes || !endpoints) return html`<h1>Now</h1><${Loading} what="the cluster" />`;
  const active = [...jobs.values()]
    .filter((job) => !isOver(job))
    .sort((one, other) => one.submitted_at.localeCompare(other.submitted_at));
  const idle = active.filter(isIdle);
  const training = active.filter((job) => !isIdle(job));
  const answering = endpoints.filter((endpoint) => endpoint.live_version != null);
  return html`<div class="title"><h1>Now</h1><${Policy} /></div>
    <${Glance} training=${training} idle=${idle} answering=${answering} nodes=${nodes} sees=${sees} />
    <${Problems} problems=${status?.problems ?? []} />
    <div class="cards">
      ${
        nodes.length === 0 &&
        html`<${Card} title="Machines" wide><${Empty} title="No machine has joined yet">
        <p>Every machine with an agent is shown here. <code>tiercel up</code> starts one on this machine, <code>
          tiercel node token</code> lets another join.</p></${Empty}></${Card}>`
      }
      ${nodes.map((node) => html`<${NodeCard} key=${node.id} node=${node} jobs=${jobs} alone=${nodes.length === 1} linked=${sees} />`)}
      ${!sees && html`<p class="muted">Only tenants see what their jobs and endpoints do.</p>`}
      ${sees && html`<${OfTenant} training=${training} idle=${idle} answering=${answering} jobs=${jobs} />`}
    </div>`;
}

/** What a tenant has: jobs that train and that do not yet, endpoints that answer, and what happened to them. */
const OfTenant = ({ training, idle, answering, jobs }) => html`<${Card} title="Training" wide>${
    training.length
      ? html`<${Training} jobs=${training} />`
      : html`<${Empty} title="Nothing trains"><p><code>tiercel submit examples/digits</code> submits a job.</p>
        </${Empty}>`
  }</${Card}>
  ${idle.length > 0 && html`<${Card} title="Pending and suspended" wide><${Idle} jobs=${idle} /></${Card}>`}
  <${Card} title="Serving" wide>${
    answering.length
      ? html`<${Serving} endpoints=${answering} />`
      : html`<${Empty} title="No endpoint answers yet"><p>A job’s first tier makes one.</p></${Empty}>`
  }</${Card}>
  <${Card} title="What happened" wide><${News} jobs=${jobs} /></${Card}>`;

/** For the operator: another policy decides from now on. */
function Policy() {
  const policy = useLive((state) => state.policy);
  const isOperator = useLive((state) => state.session?.role === "operator");
  if (!isOperator || !policy) return null;
  const set = async (name) => change({ policy: { ...policy, ...(await post("policy", { name })) } });
  return html`<div class="actions"><${Action} label="Change the policy" title="Who decides?"
    text="Another policy decides who gets what, from now on." confirm="Set policy" run=${set}
    field=${{ label: "Policy", value: policy.name, options: policy.names }} done="Another policy decides." /></div>`;
}

function Glance({ training, idle, answering, nodes, sees }) {
  const requests = answering.reduce((sum, endpoint) => sum + (endpoint.requests_per_second ?? 0), 0);
  const online = nodes.filter((node) => node.online).length;
  const figures = [
    [
      online === nodes.length ? nodes.length : `${online} of ${nodes.length}`,
      nodes.length === 1 ? "machine" : "machines",
    ],
    [training.length, "training"],
    [idle.filter((job) => job.state === "pending").length, "pending"],
    [answering.length, answering.length === 1 ? "endpoint answers" : "endpoints answer"],
    [rate(requests), "requests a second"],
  ];
  return html`<ul class="glance">${figures.slice(0, sees ? figures.length : 1).map(
    ([value, word]) => html`<li key=${word}><strong>${value}</strong> ${word}
    </li>`,
  )}</ul>`;
}

const Problems = ({ problems }) =>
  problems.length === 0
    ? null
    : html`<section class="problems" aria-label="To see to">
  <h2>To see to</h2><ul>${problems.map(
    (each) => html`<li key=${each.about + each.what}><strong>${each.about}
    </strong> ${each.what} <span class="muted">${each.action}</span></li>`,
  )}</ul>
</section>`;

const Training = ({ jobs }) => html`<${Table} caption="Jobs that train" tall=${jobs.length > MANY} keys=${jobs.map((job) => job.id)}
  head=${["Job", "State", "Tiers", "Metric", "#Latest", "#Share", "Node", "#For", "Why"]}
  rows=${jobs.map((job) => [
    html`<${JobLink} job=${job} />`,
    html`<${State} state=${job.state} />`,
    html`<${Tiers} job=${job} />`,
    job.spec.metric,
    number(job.latest_value),
    shareText(job.share),
    job.node_id,
    jobTime(job),
    html`<${Reason} text=${job.share?.reason || job.reason} />`,
  ])} />`;

const Idle = ({
  jobs,
}) => html`<${Table} caption="Jobs that are pending or suspended" tall=${jobs.length > MANY}
    keys=${jobs.map((job) => job.id)} head=${["Job", "State", "#For", "Why"]}
  rows=${jobs.map((job) => [
    html`<${JobLink} job=${job} />`,
    html`<${State}
    state=${job.state} />`,
    jobTime(job),
    html`<${Reason} text=${job.reason} />`,
  ])} />`;

const Serving = ({
  endpoints,
}) => html`<${Table} caption="Endpoints that answer" keys=${endpoints.map((endpoint) => endpoint.name)}
  head=${["Endpoint", "#Version", "Metric", "#Measured", "#Requests/s", "#p95", "#Objective", "#In time", "Nodes"]}
  rows=${endpoints.map((endpoint) => {
    const live = endpoint.versions.find((version) => version.version === endpoint.live_version);
    return [
      html`<a href=${link("endpoints", endpoint.name)}>${endpoint.name}</a>`,
      html`<span class="version">${endpoint.live_version}</span>`,
      live?.metric || undefined,
      number(live?.value),
      rate(endpoint.requests_per_second),
      milliseconds(endpoint.windows[0]?.p95_seconds),
      milliseconds(endpoint.objective_seconds),
      percent(endpoint.in_objective),
      endpoint.places.map((place) => place.node_id).join(", ") || endpoint.node_id,
    ];
  })} />`;

/** What an event says, in a few words. */
export function newsText(event) {
  if (event.type === "share") return `has ${shareText(event.share)} of ${event.node_id}: ${event.share.reason}`;
  if (event.type === "state") return `is ${event.state}${event.reason ? `: ${event.reason}` : ""}`;
  const { tier } = event;
  const name = tier.number ? `tier ${tier.number} (${number(tier.target)})` : "a better model";
  if (tier.state === "delivered")
    return `${name} delivered: ${tier.reason || `version ${tier.version} answers`}`;
  return `${name} ${tier.state}${tier.reason ? `: ${tier.reason}` : ""}`;
}

const SIGNS = { share: "⇄", state: "●", tier: "▲" };

function News({ jobs }) {
  const news = useLive((state) => state.news);
  if (!news.length)
    return html`<${Empty} title="Nothing since this page was opened"><p>
      Changes of shares, tiers and swaps appear here as they happen.</p></${Empty}>`;
  return html`<ol class="news" tabindex="0" aria-label=${`${plural(news.length, "event")}, the newest first`}>
    ${news.map(
      (event) => html`<li key=${event.sequence} class=${`news-${event.type}`}>
    <time>${clock(event.at)}</time><span class="news-sign" aria-hidden="true">${SIGNS[event.type]}</span>
    <span><a href=${link("jobs", event.job_id)}>
      ${jobs.get(event.job_id) ? jobName(jobs.get(event.job_id)) : event.job_id}</a> ${newsText(event)}</span>
  </li>`,
    )}</ol>`;
}
