// Jobs: a list in pages, with what the stream tells laid over it.
import { get } from "../api.js";
import { clock, FINAL_STATES, jobName, number, plural } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { keepJobs, useLive } from "../live.js";
import { Empty, JobLink, jobTime, Loading, Problem, shareText, State, Table, Tiers } from "../parts.js";
import { go, link } from "../route.js";

const PAGE = 50;
const KINDS = [
  ["", "All"],
  ["active", "Active"],
  ["ended", "Over"],
];
const COMPARED = 10;

export function Jobs({ query }) {
  const kind = query.get("state") ?? "";
  const words = query.get("find") ?? "";
  const [chosen, setChosen] = useState(() => new Set());
  const { rows, next, error, more } = usePages(kind);
  const live = useLive((state) => state.jobs);
  const to = (changes) => link("jobs", "", { state: kind, find: words, ...changes });
  const toggle = (id) =>
    setChosen((before) => {
      const after = new Set(before);
      if (!after.delete(id) && after.size < COMPARED) after.add(id);
      return after;
    });
  return html`<h1>Jobs</h1>
    <div class="tools">
      <div class="choice" role="group" aria-label="Which jobs">${KINDS.map(
        ([value, title]) => html`<a key=${value}
        href=${to({ state: value })} aria-current=${value === kind ? "true" : undefined}>${title}</a>`,
      )}</div>
      <label class="search"><span class="unseen">Search by name, endpoint, tenant or id</span>
        <input type="search" placeholder="Name, endpoint, tenant or id" value=${words}
          onInput=${(event) => go(to({ find: event.target.value }), { replace: true })} /></label>
      ${
        chosen.size > 1
          ? html`<a class="button filled" href=${link("compare", "", { jobs: [...chosen].join(",") })}>
            Compare ${chosen.size} jobs</a>`
          : html`<span class="muted">Tick two or more to compare them</span>`
      }
    </div>
    ${error && html`<${Problem} error=${error} again=${more} />`}
    ${!rows && !error && html`<${Loading} what="jobs" />`}
    ${
      rows &&
      html`<${Listing} jobs=${matching(rows, live, kind, words)} chosen=${chosen} toggle=${toggle}
      found=${words || kind} />`
    }
    ${next && html`<p class="more"><button type="button" onClick=${more}>Load older jobs</button></p>`}`;
}

/** Pages of the broker's list, newest first; `more` adds the next one. */
function usePages(kind) {
  const [pages, setPages] = useState({ rows: null, next: null, error: null });
  const ask = async (after, before) => {
    try {
      const { jobs, next } = await get(
        `jobs?limit=${PAGE}${kind === "active" ? "&state=active" : ""}${after ? `&after=${encodeURIComponent(after)}` : ""}`,
      );
      keepJobs(jobs);
      setPages({ rows: [...before, ...jobs], next, error: null });
    } catch (error) {
      setPages((now) => ({ ...now, error }));
    }
  };
  useEffect(() => {
    setPages({ rows: null, next: null, error: null });
    ask(null, []);
  }, [kind]);
  return { ...pages, more: () => ask(pages.next, pages.rows ?? []) };
}

function matching(rows, live, kind, words) {
  const found = new Map(rows.map((job) => [job.id, live.get(job.id) ?? job]));
  for (const job of live.values()) if (!found.has(job.id) && !FINAL_STATES.includes(job.state)) found.set(job.id, job);
  const wanted = words.toLowerCase();
  const text = (job) => [jobName(job), job.id, job.spec.endpoint, job.tenant, job.state].join(" ").toLowerCase();
  return [...found.values()]
    .filter(
      (job) => (kind === "" || FINAL_STATES.includes(job.state) === (kind === "ended")) && text(job).includes(wanted),
    )
    .sort((one, other) => other.submitted_at.localeCompare(one.submitted_at));
}

function Listing({ jobs, chosen, toggle, found }) {
  if (!jobs.length) {
    return found
      ? html`<${Empty} title="No job is like that"><p>Other words, or all jobs, may find it.</p></${Empty}>`
      : html`<${Empty} title="There is no job yet"><p><code>
        tiercel submit examples/digits</code> submits the first one.</p></${Empty}>`;
  }
  return html`<p class="unseen" role="status">${plural(jobs.length, "job")}</p><${Table}
    caption="Jobs, the newest first" keys=${jobs.map((job) => job.id)}
    head=${["Choose", "Job", "State", "Tiers", "Metric", "#Best", "#Share", "Node", "Endpoint", "#Time", "Submitted"]}
    rows=${jobs.map((job) => [
      html`<input type="checkbox" aria-label=${`Compare ${jobName(job)} ${job.id}`} checked=${chosen.has(job.id)}
        onChange=${() => toggle(job.id)} />`,
      html`<${JobLink} job=${job} /> <code class="muted">${job.id}</code>`,
      html`<${State} state=${job.state} />`,
      html`<${Tiers} job=${job} />`,
      job.spec.metric,
      number(job.best_value),
      FINAL_STATES.includes(job.state) ? undefined : shareText(job.share),
      job.node_id || undefined,
      html`<a href=${link("endpoints", job.spec.endpoint)}>${job.spec.endpoint}</a>`,
      jobTime(job),
      clock(job.submitted_at),
    ])} />`;
}
