// What a job has left: its runs and moves, its output, its files, and where its versions come from.
import { get, getText, path } from "../api.js";
import { bytes, clock, coreTime, duration, isOver, number, UNKNOWN } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { Card, Empty, Facts, Loading, Problem, Table, useEvery, useLoad } from "../parts.js";

const LOG_BYTES = 65536;
const LOG_SECONDS = 2;
const RUNS_SECONDS = 10;

export function Runs({ job }) {
  const asked = useLoad(() => get(`${path("jobs", job.id)}/runs`), [job.id, job.attempts, job.state, job.node_id]);
  useEvery(RUNS_SECONDS, () => isOver(job) || asked.again());
  const told = asked.value;
  return html`<${Card} title="Runs and moves" folds>
    ${
      asked.error
        ? html`<${Missing} error=${asked.error} what="runs" />`
        : !told
          ? html`<${Loading} what="its runs" />`
          : told.count === 0
            ? html`<${Empty} title="It has not started yet" />`
            : html`<${RunList} job=${job} told=${told} />`
    }
  </${Card}>`;
}

/** What is known of the runs, and what the latest starts took. */
function RunList({ job, told }) {
  const { present, earlier, starts } = told;
  return html`<${Facts} facts=${[
    ["Runs", `${told.count}${earlier.lost ? `, ${earlier.lost} of them lost` : ""}`],
    ["Retries", job.retries ? `${job.retries} of ${job.spec.retries} used` : ""],
    ["Moves", earlier.moves ? `${earlier.moves}, the last after ${duration(earlier.moved_seconds)}` : "none"],
    ["Moving to", present?.moving_to],
    [
      present?.active ? "Present run" : "Last run",
      present &&
        `run ${present.number} on ${present.node_id}, ${duration(present.seconds)}, ${coreTime(present.cpu_seconds)} of CPU`,
    ],
    ["Earlier runs", earlier.count ? `${duration(earlier.seconds)}, ${coreTime(earlier.cpu_seconds)} of CPU` : ""],
  ]} />
  ${
    starts.length > 0 &&
    html`<h3>What its latest starts took</h3><${Table} caption="What its latest starts took"
      head=${["Node", "Start", "#Ready in", "#CPU time", "#Stop before"]}
    rows=${starts.map((start) => [
      start.node_id,
      start.warm ? "warm" : "cold",
      duration(start.seconds),
      coreTime(start.cpu_seconds),
      duration(start.stop_seconds),
    ])} />`
  }`;
}

/** The end of the script's output; follows it while the reader is at the end. */
export function Log({ job }) {
  const [text, setText] = useState(null);
  const [error, setError] = useState(null);
  const box = useRef(null);
  const load = async () => {
    try {
      const got = await getText(`${path("jobs", job.id)}/log?bytes=${LOG_BYTES}`);
      const atEnd = !box.current || box.current.scrollHeight - box.current.scrollTop - box.current.clientHeight < 24;
      setText(got);
      setError(null);
      if (atEnd) requestAnimationFrame(() => box.current && (box.current.scrollTop = box.current.scrollHeight));
    } catch (problem) {
      setError(problem);
    }
  };
  useEffect(() => void load(), [job.id, job.state]);
  useEvery(LOG_SECONDS, () => isOver(job) || load());
  return html`<${Card} title="Output" wide folds aside=${html`<span class="muted">the last ${bytes(LOG_BYTES)}</span>`}>
    ${
      error
        ? html`<${Missing} error=${error} what="output" />`
        : text === null
          ? html`<${Loading} what="its output" />`
          : text === ""
            ? html`<${Empty} title="It has printed nothing" />`
            : html`<pre class="log" ref=${box} tabindex="0" aria-label="The end of its output">${text}</pre>`
    }
  </${Card}>`;
}

export function Files({ job }) {
  const asked = useLoad(() => get(`${path("jobs", job.id)}/files`), [job.id, job.state]);
  const files = listOf(asked.value, "files");
  return html`<${Card} title="Files that it left" folds>
    ${
      asked.error
        ? html`<${Missing} error=${asked.error} what="files" />`
        : !files
          ? html`<${Loading} what="its files" />`
          : files.length === 0
            ? html`<${Empty} title="No files"><p>Those that <code>outputs</code> of its spec names are kept.</p>
              </${Empty}>`
            : html`<${Table} caption="Its files" head=${["Path", "#Size", "Run"]}
          rows=${files.map((file) => [
            file.href ? html`<a href=${file.href} download>${file.path}</a>` : html`<code>${file.path}</code>`,
            bytes(file.size_bytes ?? file.size ?? file.bytes),
            file.run ?? file.run_id ?? undefined,
          ])} />`
    }
  </${Card}>`;
}

function programOf({ command, module, script, image, commit, dirty }) {
  const program = command.join(" ") || module || script || image;
  return commit ? `${program} at ${commit.slice(0, 10)}${dirty ? "+" : ""}` : program;
}

/** Where each of its versions comes from. */
export function Lineage({ job }) {
  const delivered = job.tiers.filter((tier) => tier.version).length;
  const asked = useLoad(
    () => (delivered ? get(`${path("jobs", job.id)}/lineage`) : Promise.resolve([])),
    [job.id, delivered],
  );
  const versions = listOf(asked.value, "versions");
  if (!delivered || asked.error?.missing) return null;
  return html`<${Card} title="Where its versions come from" wide folds>
    ${
      asked.error
        ? html`<${Problem} error=${asked.error} again=${asked.again} />`
        : !versions
          ? html`<${Loading} what="its lineage" />`
          : html`<${Table} caption="Where its versions come from"
            head=${["#Version", "#Tier", "#Measured", "Run", "Program", "Model", "Delivered"]}
          rows=${versions.map((each) => [
            each.version,
            each.tier || "best",
            number(each.value),
            each.run_id || UNKNOWN,
            html`<code>${programOf(each)}</code>`,
            html`<code title=${each.model_sha256}>${each.model_sha256.slice(0, 10)}</code>`,
            clock(each.delivered_at),
          ])} />`
    }
  </${Card}>`;
}

const listOf = (value, name) => (Array.isArray(value) ? value : value?.[name]);

/** A part that this broker has not, or that could not be loaded. */
export const Missing = ({ error, what }) =>
  error.missing
    ? html`<p class="muted">This broker does not tell of ${what} yet.</p>`
    : html`<${Problem} error=${error} />`;
