// One endpoint: what answers where, how well and how fast, and what came before.
import { get, path, post } from "../api.js";
import { cores, milliseconds, number, percent, plural, rate, UNKNOWN, url } from "../format.js";
import { html } from "../html.js";
import { load, useLive } from "../live.js";
import {
  Action,
  Card,
  Empty,
  Facts,
  Loading,
  Part,
  Problem,
  shareText,
  Table,
  useEvery,
  useLoad,
  useMayChange,
} from "../parts.js";
import { link } from "../route.js";
import { Ask } from "./ask.js";
import { Delays } from "./delays.js";
import { Decisions } from "./decisions.js";
import { liveVersion } from "./endpoints.js";
import { Trial, useTrial } from "./trial.js";
import { deployed, Versions } from "./versions.js";

const RELOAD_SECONDS = 2;

export function EndpointPage({ id }) {
  const listed = useLive((state) => state.endpoints?.find((each) => each.name === id));
  const asked = useLoad(() => get(path("endpoints", id)), [id, listed?.live_version]);
  useEvery(RELOAD_SECONDS, asked.again);
  const endpoint = listed ? { ...asked.value, ...listed } : asked.value;
  if (!endpoint && asked.error) {
    return html`<h1>Endpoint ${id}</h1><${Problem} error=${asked.error} again=${asked.again} /><p><a
      href=${link("endpoints")}>All endpoints</a></p>`;
  }
  return endpoint
    ? html`<${Endpoint} endpoint=${endpoint} />`
    : html`<h1>Endpoint ${id}</h1><${Loading} what="the endpoint" />`;
}

function Endpoint({ endpoint }) {
  const live = liveVersion(endpoint);
  const trial = useTrial(endpoint);
  return html`<div class="title">
      <div><p class="crumb"><a href=${link("endpoints")}>Endpoints</a></p><h1>${endpoint.name}</h1>
        <p class="subtitle">${
          live
            ? html`<span class="version">version ${live.version}
          </span> answers${endpoint.pinned ? ", pinned: newer ones are kept" : ""}`
            : "No version answers yet"
        }
          ${endpoint.problem && html`<span class="offline"> ${endpoint.problem}</span>`}</p></div>
      <${EndpointActions} endpoint=${endpoint} />
    </div>
    <div class="columns">
      <div>
        <${Delays} endpoint=${endpoint} trial=${trial} />
        ${live && html`<${Ask} endpoint=${endpoint} />`}
      </div>
      <div>
        <${Card} title="About it"><${About} endpoint=${endpoint} live=${live} /></${Card}>
        <${Card} title="Where it answers"><${Places} endpoint=${endpoint} /></${Card}>
        ${trial && html`<${Trial} trial=${trial} />`}
        ${
          endpoint.variants.length > 0 &&
          html`<${Card} title="Variants"><${Variants} endpoint=${endpoint} />
          </${Card}>`
        }
      </div>
      <${Versions} endpoint=${endpoint} trial=${trial} />
      <${Decisions} path=${path("endpoints", endpoint.name)} reason=${endpoint.share?.reason} />
    </div>`;
}

function EndpointActions({ endpoint }) {
  const may = useMayChange();
  if (!may || !endpoint.versions.length) return null;
  const newest = endpoint.versions.at(-1).version;
  const change = (verb, more) => async (version) => {
    await post(`${path("endpoints", endpoint.name)}/${verb}`, version ? { version, ...more } : more);
    await load();
  };
  const keep = async (count) => {
    await post(`${path("endpoints", endpoint.name)}/keep`, { count });
    await load();
  };
  return html`<div class="actions">
    <${Action} label="Promote" title=${`Which version of ${endpoint.name} shall answer?`}
      text="It answers from then on. Unless it is the newest, versions that are delivered later do not replace it."
      field=${{ label: "Version", value: newest, min: 1, max: newest }} run=${change("promote")}
        done=${`${endpoint.name} has another version.`} />
    <${Action} label="Pin" title=${`Which version of ${endpoint.name} shall stay?`}
      text="It answers until you promote another one: versions that are delivered later do not replace it."
      field=${{ label: "Version", value: endpoint.live_version ?? newest, min: 1, max: newest }}
      run=${change("promote", { pin: true })} done=${`${endpoint.name} keeps to a version.`} />
    <${Action} label="Keep" title=${`How many versions of ${endpoint.name} keep their files?`}
      text="The newest ones, and the one that answers. The files of all others are deleted at once and cannot be had back."
      field=${{ label: "Versions, 1 to 100", value: 5, min: 1, max: 100 }} run=${keep}
      done=${`It is set how many versions of ${endpoint.name} keep their files.`} />
    <${Action} label="Roll back" title=${`Roll back ${endpoint.name}?`}
      text="The version that answered before answers again. Versions that are delivered later do not replace it."
      run=${() => change("rollback", { instead_of: endpoint.live_version })()}
        done=${`${endpoint.name} is rolled back.`} />
  </div>`;
}

function About({ endpoint, live }) {
  return html`<${Facts} facts=${[
    [
      live ? live.metric : "",
      live &&
        html`<strong>${number(live.value)}
          </strong> ${live.deployed_by ? "as said" : "measured"}`,
    ],
    ["Deployed", live && deployed(live)],
    ["Requests/s", rate(endpoint.requests_per_second)],
    ["Objective", milliseconds(endpoint.objective_seconds)],
    ["In time", endpoint.in_objective == null ? "" : percent(endpoint.in_objective)],
    ["CPU now", endpoint.cpu_cores == null ? "" : cores(endpoint.cpu_cores)],
    ["Share", endpoint.share ? shareText(endpoint.share) : "not limited"],
    ["Why", endpoint.share?.reason],
    ["Server’s lag", milliseconds(endpoint.lag_seconds)],
    ["Access", endpoint.access],
    ["Tenant", endpoint.tenant],
    ["Replicas", `${endpoint.replicas}${endpoint.auto_replicas ? ", the broker decides" : ""}`],
    ["Why so many", endpoint.replicas_reason],
    ["Inputs", live?.inputs.length ? asked(live) : ""],
    ["Retraining", endpoint.retraining],
    [
      "HTTP",
      endpoint.serving_http && html`<code>${url(endpoint.serving_http)}/v2/models/${endpoint.name}/infer</code>`,
    ],
    ["gRPC", endpoint.serving_grpc && html`<code>${endpoint.serving_grpc}</code>`],
  ].filter(([name]) => name)} />`;
}

const two = (distance) => String(+distance.toPrecision(2));

const asked = ({ inputs }) =>
  inputs.map(
    (said) => html`<span class=${said.drifted ? "" : "muted"}>${
      said.rows
        ? `${said.drifted ? "✕ different from" : "like"} the first ones at ${said.node_id}; largest distances: ${said.farthest
            .slice(0, 3)
            .map((each) => `${each.name} ${two(each.distance)}`)
            .join(", ")} (different is above ${two(said.bound)})`
        : `too few to compare yet at ${said.node_id}: ${plural(said.reference_rows, "row")}`
    }</span> `,
  );

const Places = ({ endpoint }) =>
  endpoint.places.length === 0 && !endpoint.node_id
    ? html`<${Empty} title="It answers nowhere yet" />`
    : html`<${Table} caption="Where it answers" head=${["Node", "#Version", "As wanted", "Note"]}
      rows=${(endpoint.places.length
        ? endpoint.places
        : [{ node_id: endpoint.node_id, answering_version: endpoint.answering_version, problem: endpoint.problem }]
      ).map((place) => [
        place.node_id,
        place.answering_version ?? undefined,
        place.answering_version === endpoint.live_version ? "✓ yes" : `◌ not yet: version ${endpoint.live_version ?? UNKNOWN}`,
        place.problem || undefined,
      ])} />`;

const Variants = ({ endpoint }) => html`<${Table} caption="Variants and their parts of the answers"
  head=${["Variant", "#Version", "#Measured", "Part of the answers", "Note"]}
  rows=${endpoint.variants.map((variant) => [
    variant.name,
    variant.live_version,
    number(variant.accuracy),
    html`<${Part} part=${variant.answered_part ?? 0} /> ${percent(variant.answered_part)}`,
    variant.problem || undefined,
  ])} />`;
