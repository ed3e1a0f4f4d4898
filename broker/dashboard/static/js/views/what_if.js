// What if: a change is tried in the simulator from the present state, beside the present plan.
import { post } from "../api.js";
import { isOver, jobName } from "../format.js";
import { html, useState } from "../html.js";
import { useLive } from "../live.js";
import { Card, Empty, Problem } from "../parts.js";
import { go, link } from "../route.js";
import { Prediction } from "./prediction.js";
import { PredictionErrors } from "./predictions.js";

// Until the broker has said which there are.
const POLICIES = [
  "dqoes",
  "fair",
  "fifo",
  "flowcon",
  "las",
  "random-order",
  "slaq",
  "specon",
  "srpt",
  "srpt-oracle",
  "tradl",
  "utility",
];
// What can be asked: the fields that it needs, and the change as the broker takes it.
const KINDS = {
  policy: { title: "Another policy", fields: ["policy"], change: ({ policy }) => ({ policy }) },
  more: { title: "One more machine", fields: ["node"], change: ({ node }) => ({ add_nodes: [{ like: node }] }) },
  fewer: { title: "One machine fewer", fields: ["node"], change: ({ node }) => ({ remove_nodes: [node] }) },
  cancel: { title: "A job cancelled", fields: ["job"], change: ({ job }) => ({ cancel: [job] }) },
  again: { title: "One more job like one there is", fields: ["job"], change: ({ job }) => ({ add_like: [job] }) },
  priority: {
    title: "A job with another priority",
    fields: ["job", "priority"],
    change: ({ job, priority }) => ({ priorities: { [job]: Number(priority) } }),
  },
  requests: {
    title: "More requests, or fewer",
    fields: ["endpoint", "factor"],
    change: ({ endpoint, factor }) => ({ requests: { [endpoint]: Number(factor) } }),
  },
};

/** What each field may be: [value, words] pairs of a choice, or the bounds of a number. */
function useFields() {
  const nodes = useLive((state) => state.nodes) ?? [];
  const endpoints = useLive((state) => state.endpoints) ?? [];
  const jobs = [...useLive((state) => state.jobs).values()].filter((job) => !isOver(job));
  const policy = useLive((state) => state.policy);
  const plain = (names) => names.map((name) => [name, name]);
  return {
    policy: { title: "Policy", options: plain((policy?.names ?? POLICIES).filter((name) => name !== policy?.name)) },
    node: { title: "Like this one", options: plain(nodes.map((node) => node.id)) },
    job: { title: "Job", options: jobs.map((job) => [job.id, `${jobName(job)} · ${job.id}`]) },
    endpoint: { title: "Endpoint", options: plain(endpoints.map((endpoint) => endpoint.name)) },
    priority: { title: "Priority, -100 to 100", number: { min: -100, max: 100, step: 1 }, first: "10" },
    factor: { title: "Times as many requests", number: { min: 0.01, max: 100, step: "any" }, first: "2" },
  };
}

export function WhatIf({ query }) {
  const fields = useFields();
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const kind = KINDS[query.get("kind")] ?? KINDS.policy;
  const value = (name) => query.get(name) ?? fields[name].first ?? fields[name].options[0]?.[0] ?? "";
  const set = (changes) => go(link("what-if", "", { ...Object.fromEntries(query), ...changes }), { replace: true });
  const ask = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const asked = Object.fromEntries(kind.fields.map((name) => [name, value(name)]));
      setAnswer(await post("what-if", { change: kind.change(asked) }));
    } catch (problem) {
      setAnswer(null);
      setError(problem);
    }
    setBusy(false);
  };
  return html`<h1>What if</h1>
    <p class="lead">The simulator goes on from the present state, once as it is and once with the change.
      Nothing is changed here.</p>
    <${Card} title="The change"><form class="form-grid" onSubmit=${ask}>
      <label>What would be different<select value=${query.get("kind") ?? "policy"}
        onChange=${(event) => set({ kind: event.target.value })}>
        ${Object.entries(KINDS).map(([name, { title }]) => html`<option key=${name} value=${name}>${title}</option>`)}
      </select></label>
      ${kind.fields.map(
        (name) => html`<${Field} key=${name} field=${fields[name]} value=${value(name)}
        set=${(given) => set({ [name]: given })} />`,
      )}
      <div><button type="submit" class="filled" disabled=${busy || kind.fields.some((name) => value(name) === "")}>
        ${busy ? "Simulating…" : "Predict"}</button></div>
    </form></${Card}>
    ${error?.missing && html`<${Empty} title="This broker cannot predict yet"><p>${error.message}</p></${Empty}>`}
    ${error && !error.missing && html`<${Problem} error=${error} />`}
    <div role="status">${answer && html`<${Prediction} answer=${answer} />`}</div>
    <${PredictionErrors} turn=${answer} />`;
}

function Field({ field, value, set }) {
  if (field.number) {
    return html`<label>${field.title}<input type="number" required ...${field.number} value=${value}
      onInput=${(event) => set(event.target.value)} /></label>`;
  }
  return html`<label>${field.title}<select value=${value} onChange=${(event) => set(event.target.value)}>
    ${field.options.map(([name, words]) => html`<option key=${name} value=${name}>${words}</option>`)}
    ${field.options.length === 0 && html`<option value="">there is none</option>`}
  </select></label>`;
}
