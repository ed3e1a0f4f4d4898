// A job's share over time; decisions.js has the reason of each change.
import { get, path } from "../api.js";
import { isOver, percent, plural, secondsSince } from "../format.js";
import { html, useEffect, useMemo, useState } from "../html.js";
import { useEvents } from "../live.js";
import { Card, Empty, Loading, Problem, useLoad } from "../parts.js";
import { Plot } from "../plot.js";

const POINTS = 800;
const STEP_SECONDS = 5;

export function Shares({ job }) {
  const asked = useLoad(() => get(`${path("jobs", job.id)}/shares?width=${POINTS}`), [job.id]);
  const [added, setAdded] = useState([]);
  useEffect(() => setAdded([]), [asked.value]);
  useEvents((events) => {
    const mine = events
      .filter((event) => event.type === "share" && event.content.job_id === job.id)
      .map(({ content }) => ({
        ...content.share,
        seconds: (new Date(content.at) - new Date(job.submitted_at)) / 1000,
        node_id: content.node_id,
      }));
    if (mine.length) setAdded((before) => [...before, ...mine].slice(-POINTS));
  });
  const points = useMemo(() => {
    const known = asked.value?.points ?? [];
    const last = known.at(-1)?.seconds ?? -1;
    return [...known, ...added.filter((point) => point.seconds > last + 0.001)];
  }, [asked.value, added]);
  return html`<${Card} title="Share over time" aside=${html`<span class="muted">${plural(points.length, "change")}</span>`}>
    ${asked.error && html`<${Problem} error=${asked.error} again=${asked.again} />`}
    ${!asked.value && !asked.error && html`<${Loading} what="its shares" />`}
    ${
      asked.value &&
      (points.length
        ? html`<${History} job=${job} points=${points} />`
        : html`<${Empty} title="It had no share yet"><p>The scheduler gives it one when it is its turn.</p></${Empty}>`)
    }
  </${Card}>`;
}

function History({ job, points }) {
  const devices = points.some((point) => point.accelerators?.length);
  // Until now, in steps that are drawn; a job that waits or is suspended has none since it stopped.
  const last = points.at(-1);
  const end = isOver(job)
    ? job.finished_seconds
    : !job.share
      ? last.seconds
      : Math.ceil(secondsSince(job.submitted_at) / STEP_SECONDS) * STEP_SECONDS;
  const plot = useMemo(() => {
    const all = end > points.at(-1).seconds ? [...points, { ...points.at(-1), seconds: end }] : points;
    const held = (point) => (point.accelerators ?? []).reduce((sum, each) => sum + each.fraction, 0);
    return {
      data: [
        all.map((point) => point.seconds),
        all.map((point) => point.cpu_weight),
        ...(devices ? [all.map(held)] : []),
      ],
      y: { span: (_, most) => [0, most || 1], range: (_, most) => [0, Math.max(1, most) * 1.05], format: percent },
    };
  }, [points, devices, end]);
  const series = [{ label: "CPU of its node", colour: "series-0", stepped: true }];
  if (devices) series.push({ label: "accelerators", colour: "series-1", dash: [6, 3], stepped: true });
  return html`<${Plot} name="Share over time"
    summary=${`${job.share ? "Now" : "At last"} ${percent(last.cpu_weight)} of the CPU of ${last.node_id}.`} series=${series}
      ...${plot} height=${190} />`;
}
