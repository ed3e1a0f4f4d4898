// The versions of an endpoint: which answers, how good each is, two of them side by side, and files that go.
import { get, path, post } from "../api.js";
import { milliseconds, number, UNKNOWN } from "../format.js";
import { html, useState } from "../html.js";
import { load } from "../live.js";
import { Action, Card, Empty, Loading, Problem, Reason, Table, useLoad, useMayChange, When } from "../parts.js";
import { link } from "../route.js";

export function Versions({ endpoint, trial }) {
  const [chosen, setChosen] = useState([]);
  const may = useMayChange();
  const toggle = (version) =>
    setChosen((before) =>
      before.includes(version) ? before.filter((each) => each !== version) : [...before, version].slice(-2),
    );
  const aside = html`<span class="muted">Tick two to compare them</span>`;
  return html`<${Card} title="Versions" aside=${endpoint.versions.length > 1 ? aside : ""} wide>
    ${
      endpoint.versions.length === 0
        ? html`<${Empty} title="No version was delivered yet" />`
        : html`<${Table} caption="Versions, the newest first"
          keys=${endpoint.versions.map((each) => each.version).reverse()}
          head=${["Choose", "#Version", "Answers", "#Measured", "#In use", "Metric", "#Tier", "Variant", "Job", "Delivered", "Note", "Files"]}
          rows=${[...endpoint.versions].reverse().map((each) => [
            html`<input type="checkbox" aria-label=${`Compare version ${each.version}`}
              checked=${chosen.includes(each.version)} onChange=${() => toggle(each.version)} />`,
            each.version,
            trial?.state === "RUNNING" && Number(trial.version) === each.version ? "on trial" : answers(each),
            number(each.value),
            each.in_use ? inUse(each.in_use) : undefined,
            each.metric || undefined,
            each.tier || (each.job_id ? "best" : undefined),
            each.variant || undefined,
            each.job_id ? html`<a href=${link("jobs", each.job_id)}>${each.job_id}</a>` : deployed(each),
            html`<${When} iso=${each.delivered_at} />`,
            note(each),
            files(endpoint, each, may),
          ])} />`
    }
    ${chosen.length === 2 && html`<${Differences} endpoint=${endpoint.name} versions=${[...chosen].sort((a, b) => a - b)} />`}
  </${Card}>`;
}

const answers = (version) => (version.live ? (version.pinned ? "● yes, pinned" : "● yes") : version.held ? "held" : "no");

const inUse = (said) => html`<span title=${`${number(said.low)} to ${number(said.high)}, of ${said.rows} rows`}>
    ${number(said.accuracy)}</span>`;

function note({ held, cheap_variants }) {
  if (held) return html`<${Reason} text=${held} />`;
  if (!cheap_variants.length) return undefined; // else a phone shows the word for nothing
  return cheap_variants.map((each) => html`<div class=${each.shipped ? "" : "reason"}>${ofVariant(each)}</div>`);
}

function ofVariant({ kind, shipped, reason, value, seconds, fp32_seconds }) {
  if (!shipped) return `${kind} is not shipped: ${reason}`;
  return `${kind}: ${number(value)}${seconds ? `, ${number(fp32_seconds / seconds)} times as fast` : ""}`;
}

export const deployed = (version) => version.deployed_by && `${version.file}, by ${version.deployed_by}`;

function files(endpoint, version, may) {
  if (!version.kept) return "gone";
  if (!may || version.live) return "kept";
  const name = `${endpoint.name}:${version.version}`;
  const remove = async () => {
    await post(`${path("endpoints", endpoint.name)}/remove`, { version: version.version });
    await load();
  };
  return html`<${Action} label="Remove" name=${`Remove version ${version.version}`} look="quiet" danger
    title=${`Remove the files of ${name}?`} text="They go from all nodes, for good. What is known of the version stays."
    confirm="Remove its files" run=${remove} done=${`The files of ${name} go.`} />`;
}

function Differences({ endpoint, versions }) {
  const [first, second] = versions;
  const asked = useLoad(() => get(`${path("endpoints", endpoint)}/compare?first=${first}&second=${second}`), [
    endpoint,
    first,
    second,
  ]);
  if (asked.error) return html`<${Problem} error=${asked.error} again=${asked.again} />`;
  if (!asked.value) return html`<${Loading} what="what differs" />`;
  return html`<h3>Version ${first} beside version ${second}</h3>${
    asked.value.length
      ? html`<${Table} caption="What differs" head=${["What", `Version ${first}`, `Version ${second}`]}
        rows=${differing(asked.value).map((each) => [nameOf(each.what), text(each.what, each.first), text(each.what, each.second)])} />`
      : html`<${Empty} title="They are the same" />`
  }`;
}

// What two versions differ in, by the names that this page has for it elsewhere; others are told as they are.
const NAMES = {
  tier: "Tier",
  value: "Measured",
  target: "Target",
  metric: "Metric",
  sha256: "SHA-256 of its file",
  kept: "Files kept",
  nodes: "Nodes",
  p50_seconds: "p50",
  p95_seconds: "p95",
};

/** What is told twice, as a digest of the model beside the same of its file, is left out. */
const differing = (rows) =>
  rows.filter(
    ({ what, first, second }) =>
      what !== "model_sha256" || !rows.some((each) => each.what === "sha256" && each.first === first && each.second === second),
  );

function nameOf(what) {
  if (what.startsWith("metrics.")) return `Reported ${what.slice("metrics.".length)}`;
  return NAMES[what] ?? html`<code>${what}</code>`;
}

const DIGEST = /^[0-9a-f]{64}$/;

function text(what, value) {
  if (value == null || value === "" || (Array.isArray(value) && !value.length)) return UNKNOWN;
  if (typeof value === "number") return what.endsWith("_seconds") ? milliseconds(value) : number(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (DIGEST.test(value)) return html`<code title=${value}>${value.slice(0, 8)}…</code>`;
  return html`<${Reason} text=${Array.isArray(value) ? value.join(", ") : String(value)} />`;
}
