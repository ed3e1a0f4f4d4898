// What if: a change is tried in the simulator from the present state, beside the present plan.
import { post } from "../api.js";
import { duration, jobName, milliseconds, number, percent, plural, UNKNOWN } from "../format.js";
import { html, useState } from "../html.js";
import { useLive } from "../live.js";
import { Card, Empty, Problem, Table } from "../parts.js";
import { go, link } from "../route.js";

const POLICIES = ["dqoes", "fair", "fifo", "flowcon", "las", "slaq", "specon", "srpt", "tradl", "utility"];
const KINDS = {
  policy: { title: "Another policy", field: "policy" },
  node: { title: "One more machine like this one", field: "node" },
  cancel: { title: "A job cancelled", field: "job" },
  priority: { title: "A job with another priority", field: "job" },
  requests: { title: "More requests, or fewer", field: "factor" },
};

/** The change as the broker takes it, from what the form says. */
function changeOf({ kind, policy, node, job, priority, factor }) {
  if (kind === "policy") return { policy };
  if (kind === "node") return { add_node: node };
  if (kind === "cancel") return { cancel: job };
  if (kind === "priority") return { priority: { job, value: Number(priority) } };
  return { request_factor: Number(factor) };
}

export function WhatIf({ query }) {
  const nodes = useLive((state) => state.nodes) ?? [];
  const jobs = [...useLive((state) => state.jobs).values()].filter((job) => job.finished_seconds == null);
  const present = useLive((state) => state.session?.policy);
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const form = {
    kind: query.get("kind") ?? "policy",
    policy: query.get("policy") ?? POLICIES.find((name) => name !== present),
    node: query.get("node") ?? nodes[0]?.id,
    job: query.get("job") ?? jobs[0]?.id,
    priority: query.get("priority") ?? "10",
    factor: query.get("factor") ?? "2",
  };
  const set = (changes) => go(link("what-if", "", { ...Object.fromEntries(query), ...changes }), { replace: true });
  const ask = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      setAnswer(await post("what-if", { change: changeOf(form) }));
    } catch (problem) {
      setAnswer(null);
      setError(problem);
    }
    setBusy(false);
  };
  const needsJob = KINDS[form.kind]?.field === "job";
  return html`<h1>What if</h1>
    <p class="lead">The simulator goes on from the present state, once as it is and once with the change.
      Nothing is changed here.</p>
    <${Card} title="The change"><form class="form-grid" onSubmit=${ask}>
      <label>What would change<select value=${form.kind} onChange=${(event) => set({ kind: event.target.value })}>
        ${Object.entries(KINDS).map(([name, { title }]) => html`<option key=${name} value=${name}>${title}</option>`)}
          </select></label>
      ${
        form.kind === "policy" &&
        html`<${Pick} title="Policy" value=${form.policy}
        options=${POLICIES.map((name) => [name, name])} set=${(policy) => set({ policy })} />`
      }
      ${
        form.kind === "node" &&
        html`<${Pick} title="Machine" value=${form.node}
        options=${nodes.map((node) => [node.id, node.id])} set=${(node) => set({ node })} />`
      }
      ${
        needsJob &&
        html`<${Pick} title="Job" value=${form.job}
        options=${jobs.map((job) => [job.id, `${jobName(job)} · ${job.id}`])} set=${(job) => set({ job })} />`
      }
      ${
        form.kind === "priority" &&
        html`<label>Priority, -100 to 100<input type="number" min="-100" max="100" step="1"
        required value=${form.priority} onInput=${(event) => set({ priority: event.target.value })} /></label>`
      }
      ${
        form.kind === "requests" &&
        html`<label>Times as many requests<input type="number" min="0" max="100" step="any"
        required value=${form.factor} onInput=${(event) => set({ factor: event.target.value })} /></label>`
      }
      <div><button type="submit" class="filled" disabled=${busy || (needsJob && !form.job)}>
        ${busy ? "Simulating…" : "Predict"}</button></div>
    </form></${Card}>
    ${
      error &&
      (error.missing
        ? html`<${Empty} title="This broker cannot predict yet"><p>${error.message}</p>
      </${Empty}>`
        : html`<${Problem} error=${error} />`)
    }
    <div role="status">${answer && html`<${Prediction} answer=${answer} />`}</div>`;
}

const Pick = ({
  title,
  value,
  options,
  set,
}) => html`<label>${title}<select value=${value} onChange=${(event) => set(event.target.value)}>
  ${
    options.length
      ? options.map(
          ([name, text]) => html`<option key=${name} value=${name}>${text}
    </option>`,
        )
      : html`<option value="">there is none</option>`
  }</select></label>`;

function Prediction({ answer }) {
  const { jobs, endpoints = [], error, assumptions = [] } = answer;
  const measured = error
    ? `± ${percent(error.median)}, the median error of ${plural(error.count, "earlier prediction")}`
    : "no earlier prediction has come true yet, so its error is not known";
  const furthest = Math.max(
    1,
    ...jobs.flatMap((job) =>
      job.tiers.flatMap((tier) => [tier.present, tier.changed].map((when) => when?.high ?? when?.seconds ?? 0)),
    ),
  );
  const rows = jobs.flatMap((job) => job.tiers.map((tier) => ({ job, tier })));
  return html`<div class="cards predicted">
    <${Card} title="Tiers" wide aside=${html`<span class="muted">${measured}</span>`}>
      ${
        rows.length === 0
          ? html`<${Empty} title="No tier is ahead" />`
          : html`<${Table} caption="When tiers come, as it is and with the change"
            keys=${rows.map(({ job, tier }) => `${job.id}-${tier.tier}`)}
        head=${["Job", "Tier", "#As it is", "#With the change", "#Difference", "From now on", "Node"]}
        rows=${rows.map(({ job, tier }) => [
          html`<a href=${link("jobs", job.id)}>${job.name || job.id}</a>`,
          `tier ${tier.tier} · ${number(tier.target)}`,
          band(tier.present),
          band(tier.changed),
          html`<${Difference} before=${tier.present?.seconds} after=${tier.changed?.seconds} format=${duration} />`,
          html`<${Bands} present=${tier.present} changed=${tier.changed} furthest=${furthest} />`,
          moved(job),
        ])} />`
      }
    </${Card}>
    ${
      endpoints.length > 0 &&
      html`<${Card} title="Endpoints" wide><${Table} caption="Answers in time, as it is and with the change"
      head=${["Endpoint", "#In time", "#With the change", "#p95", "#With the change "]}
      rows=${endpoints.map(({ name, present, changed }) => [
        name,
        percent(present?.in_objective),
        percent(changed?.in_objective),
        milliseconds(present?.p95_seconds),
        milliseconds(changed?.p95_seconds),
      ])} /></${Card}>`
    }
    ${
      assumptions.length > 0 &&
      html`<${Card} title="What it assumes" wide><ul>${assumptions.map(
        (each) => html`<li
      key=${each}>${each}</li>`,
      )}</ul></${Card}>`
    }
  </div>`;
}

const band = (when) =>
  when?.seconds == null
    ? "unknown"
    : when.low == null
      ? duration(when.seconds)
      : `${duration(when.seconds)} (${duration(when.low)} to ${duration(when.high)})`;

const moved = ({ present, changed }) =>
  !changed?.node_id || present?.node_id === changed.node_id
    ? present?.node_id || undefined
    : `${present?.node_id || "waits"} → ${changed.node_id}`;

function Difference({ before, after, format }) {
  if (before == null || after == null) return UNKNOWN;
  const part = (after - before) / Math.max(before, 1e-9);
  if (Math.abs(part) < 0.01) return "the same";
  return html`<span class=${after < before ? "better" : "worse"}>
    ${format(Math.abs(after - before))} ${after < before ? "sooner" : "later"}</span>`;
}

/** Two bars over one axis: from the earliest to the latest time that is likely, and a mark at the expected one. */
function Bands({ present, changed, furthest }) {
  const lane = (when, y, look) =>
    when?.seconds != null &&
    html`<rect class=${look} x=${(196 * (when.low ?? when.seconds)) / furthest} y=${y} rx="2" height="8"
      width=${Math.max(2, (196 * ((when.high ?? when.seconds) - (when.low ?? when.seconds))) / furthest)} />
    <rect class=${`${look}-mark`} x=${(196 * when.seconds) / furthest} y=${y - 1} width="3" height="10" />`;
  return html`<svg class="bands" width="200" height="24" aria-hidden="true">
    ${lane(present, 2, "as-is")}${lane(changed, 14, "with-change")}</svg>`;
}
