// Audit: who changed what, and who was refused; newest first, in pages.
import { get } from "../api.js";
import { clock } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { Empty, Loading, Problem, Table } from "../parts.js";
import { go, link } from "../route.js";

const PAGE = 100;
const GOOD = new Set(["done", "begun", "unknown"]);

export function Audit({ query }) {
  const [rows, setRows] = useState(null);
  const [next, setNext] = useState(null);
  const [error, setError] = useState(null);
  const words = (query.get("find") ?? "").toLowerCase();
  const refused = query.get("refused") === "yes";
  const to = (changes) =>
    link("audit", "", { find: query.get("find") ?? "", refused: refused ? "yes" : "", ...changes });
  const ask = async (before) => {
    try {
      const told = await get(`audit?limit=${PAGE}${before ? `&before=${before}` : ""}`);
      setRows((known) => (before ? [...known, ...told.calls] : told.calls));
      setNext(told.next);
      setError(null);
    } catch (problem) {
      setError(problem);
    }
  };
  useEffect(() => void ask(), []);
  const shown = (rows ?? []).filter(
    (row) => (!refused || !GOOD.has(row.outcome)) && Object.values(row).join(" ").toLowerCase().includes(words),
  );
  return html`<h1>Audit</h1><p class="lead">Who changed what, and who was refused. <code>
    tiercel audit --check</code> says whether anybody meddled with it.</p>
    <div class="tools">
      <label class="search"><span class="unseen">Search in these rows</span><input type="search"
        placeholder="Caller, method, object…" value=${query.get("find") ?? ""}
        onInput=${(event) => go(to({ find: event.target.value }), { replace: true })} /></label>
      <label class="inline"><input type="checkbox" checked=${refused}
        onChange=${(event) => go(to({ refused: event.target.checked ? "yes" : "" }), { replace: true })} /> Only what was refused</label>
    </div>
    ${error && html`<${Problem} error=${error} again=${() => ask()} />`}
    ${!rows && !error && html`<${Loading} what="the audit log" />`}
    ${
      rows &&
      (shown.length === 0
        ? html`<${Empty} title="No row is like that" />`
        : html`<${Table} caption="Audit log, the newest first" keys=${shown.map((row) => row.number)}
      head=${["#No.", "At", "Caller", "Role", "Tenant", "Method", "Object", "Outcome", "From"]}
      rows=${shown.map((row) => [
        row.number,
        clock(row.at),
        row.caller || "nobody known",
        row.role || undefined,
        row.tenant || undefined,
        html`<code>${row.method}</code>`,
        row.object || undefined,
        html`<span class=${GOOD.has(row.outcome) ? "" : "offline"}>${GOOD.has(row.outcome) ? "" : "✕ "}${row.outcome.replaceAll("_", " ")}
          </span>`,
        row.peer,
      ])} />`)
    }
    ${next && html`<p class="more"><button type="button" onClick=${() => ask(next)}>Load older rows</button></p>`}`;
}
