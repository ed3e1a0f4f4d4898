// Endpoints: what answers under which name, how fast, how well.
import { milliseconds, number, percent, plural, rate } from "../format.js";
import { html } from "../html.js";
import { useLive } from "../live.js";
import { Empty, Loading, Table } from "../parts.js";
import { go, link } from "../route.js";

export function Endpoints({ query }) {
  const endpoints = useLive((state) => state.endpoints);
  const words = query.get("find") ?? "";
  if (!endpoints) return html`<h1>Endpoints</h1><${Loading} what="endpoints" />`;
  if (!endpoints.length) {
    return html`<h1>Endpoints</h1><${Empty} title="There is no endpoint yet"><p>A job names one (<code>
      endpoint: digits</code>), and its first tier makes it answer.</p></${Empty}>`;
  }
  const shown = endpoints.filter((each) => `${each.name} ${each.tenant}`.toLowerCase().includes(words.toLowerCase()));
  return html`<h1>Endpoints</h1>
    <div class="tools"><label class="search"><span class="unseen">Search by name or tenant</span>
      <input type="search" placeholder="Name or tenant" value=${words}
        onInput=${(event) => go(link("endpoints", "", { find: event.target.value }), { replace: true })} /></label>
      <span class="muted" role="status">${plural(shown.length, "endpoint")}</span></div>
    ${
      shown.length === 0
        ? html`<${Empty} title="No endpoint is called that" />`
        : html`<${Table} caption="Endpoints" keys=${shown.map((each) => each.name)}
      head=${[
        ...["Endpoint", "#Version", "Metric", "#Measured", "#Requests/s", "#p50", "#p95", "#p99", "#Objective"],
        ...["#In time", "Nodes", "Access", "Note"],
      ]}
      rows=${shown.map((each) => {
        const window = each.windows[0] ?? {};
        return [
          html`<a href=${link("endpoints", each.name)}>${each.name}</a>`,
          each.live_version == null
            ? html`<span class="muted">none yet</span>`
            : html`<span class="version">${each.live_version}</span>${each.pinned ? " pinned" : ""}`,
          liveVersion(each)?.metric || undefined,
          number(liveVersion(each)?.value),
          rate(each.requests_per_second),
          milliseconds(window.p50_seconds),
          milliseconds(window.p95_seconds),
          milliseconds(window.p99_seconds),
          milliseconds(each.objective_seconds),
          percent(each.in_objective),
          each.places.map((place) => place.node_id).join(", ") || each.node_id || undefined,
          each.access,
          each.problem || undefined,
        ];
      })} />`
    }`;
}

export const liveVersion = (endpoint) => endpoint.versions.find((version) => version.version === endpoint.live_version);
