// The small parts that all views are made of.
import { clock, cores, duration, isOver, jobName, number, percent, UNKNOWN } from "./format.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { change, now, useLive } from "./live.js";
import { link } from "./route.js";

const SIGNS = {
  pending: "○",
  starting: "◔",
  running: "●",
  disconnected: "◌",
  stopping: "◕",
  suspended: "‖",
  completed: "✓",
  missed: "◇",
  failed: "✕",
  cancelled: "–",
};

/** A job's state as a sign and a word: never by colour alone. */
export const State = ({ state }) =>
  html`<span class=${`state state-${state}`}><span aria-hidden="true">${SIGNS[state] ?? "·"}</span> ${state}</span>`;

const TIER_WORDS = {
  pending: "ahead",
  unreachable: "out of reach",
  reached: "reached, on its way",
  delivered: "delivered",
  failed: "failed",
};
const TIER_SIGNS = { pending: "", unreachable: "✕", reached: "…", delivered: "✓", failed: "!" };

/** A bar for each tier, as full as the metric is near to it. */
export function Tiers({ job }) {
  const words = job.tiers.map((tier) => `${number(tier.target)} ${TIER_WORDS[tier.state]}`).join(", ");
  return html`<span class="tiers" role="img" aria-label=${`tiers: ${words}`} title=${words}>
    ${job.tiers.map(
      (tier) => html`<span class=${`tier tier-${tier.state}`} key=${tier.number}>
      <span class="tier-fill" style=${{ width: `${Math.round(100 * nearness(job, tier))}%` }}></span>
      <span class="tier-text">${TIER_SIGNS[tier.state]}${TIER_SIGNS[tier.state] ? " " : ""}${number(tier.target)}</span>
    </span>`,
    )}
  </span>`;
}

function nearness(job, tier) {
  if (tier.state === "delivered" || tier.state === "reached") return 1;
  const best = job.best_value;
  if (best == null || tier.target === 0) return 0;
  const part = job.spec.direction === "max" ? best / tier.target : tier.target / best;
  return Number.isFinite(part) ? Math.min(1, Math.max(0, part)) : 0;
}

/** Why something is as it is; a number and its % stay in one line. */
export const Reason = ({ text }) => html`<span class="reason">${text?.replaceAll(" %", "\u00a0%")}</span>`;
export const JobLink = ({ job }) => html`<a href=${link("jobs", job.id)}>${jobName(job)}</a>`;
export const Empty = ({ title, children }) =>
  html`<div class="empty"><p class="empty-title">${title}</p>${children}</div>`;
export const Loading = ({ what }) =>
  html`<p class="loading" role="status"><span class="spinner" aria-hidden="true"></span>Loading ${what}…</p>`;
export const Problem = ({ error, again }) => html`<div class="problem" role="alert">
  <p><strong>That did not work.</strong> ${error.message ?? error}</p>
  ${again && html`<button type="button" onClick=${again}>Try again</button>`}
</div>`;

const narrow = matchMedia("(max-width: 640px)");

/** A section with a heading; `aside` stands at the right of it; on a phone one that `folds` is closed at first. */
export function Card({ title, aside, children, wide, id, folds }) {
  const [folded] = useState(() => folds && narrow.matches);
  const name = id ?? slug(title);
  const head = html`<h2 id=${name}>${title}</h2>${aside}`;
  return html`<section class=${wide ? "card wide" : "card"} aria-labelledby=${name}>
    ${
      folded
        ? html`<details><summary class="card-head">${head}</summary>${children}</details>`
        : html`<div class="card-head">${head}</div>${children}`
    }
  </section>`;
}

const slug = (title) => `h-${title.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`;

const SIDE_BY_SIDE = 3; // columns that a phone has room for

/**
 * A table; where the screen is narrow, rows of many columns become blocks, and others scroll sideways on their own.
 * @param {{caption: string, head: string[], rows: any[], keys?: string[], tall?: boolean}} props heads that begin with "#" are
 *   numbers; one that is `tall` scrolls on its own.
 */
export function Table({ caption, head, rows, keys, tall }) {
  const stacks = head.length > SIDE_BY_SIDE;
  // What is laid out as blocks is a table to nobody who hears it, unless it says so.
  const role = (name) => (stacks ? name : undefined);
  return html`<div class=${tall ? "scroll tall" : "scroll"} tabindex="0" role="group" aria-label=${caption}>
    <table class=${stacks ? "stacks" : ""} role=${role("table")}>
      <caption class="unseen">${caption}</caption>
      <thead role=${role("rowgroup")}><tr role=${role("row")}>${head.map(
        (name) => html`<th scope="col" role=${role("columnheader")} class=${name.startsWith("#") ? "number" : ""}>
        ${wrapping(name.replace(/^#/, ""))}</th>`,
      )}</tr></thead>
      <tbody role=${role("rowgroup")}>${rows.map(
        (row, index) => html`<tr role=${role("row")} key=${keys?.[index] ?? index}>
        ${row.map(
          (cell, column) => html`<td class=${cellClass(head[column], cell)} role=${role("cell")}
            data-head=${stacks ? head[column].replace(/^#/, "") : undefined}>${wrapping(cell ?? UNKNOWN)}</td>`,
        )}
      </tr>`,
      )}</tbody>
    </table>
  </div>`;
}

const LONG = 26; // characters; from there on tables.css gives it a second line

const wrapping = (cell) =>
  typeof cell === "string" && cell.length > LONG ? html`<span class="wraps">${cell}</span>` : cell;

// What a narrow screen has no line for is told apart by its class.
function cellClass(name, cell) {
  const kind = name.startsWith("#") ? "number" : "";
  return [undefined, null, "", UNKNOWN].includes(cell) ? `${kind} nothing` : kind;
}

/** Names and values. */
export const Facts = ({ facts }) => html`<dl class="facts">
  ${facts
    .filter(([, value]) => value !== undefined && value !== "" && value !== null)
    .map(
      ([name, value]) => html`
    <div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`,
    )}
</dl>`;

/** A part of something, from 0 to 1, as a bar. */
export const Part = ({ part }) =>
  html`<span class="part"><span class="part-fill" style=${{ width: `${100 * Math.min(1, part)}%` }}></span></span>`;

/** What a share is: the part of the node's CPU, a cap, accelerators. */
export function shareText(share) {
  if (!share) return UNKNOWN;
  const cap = share.cpu_cap_cores == null ? "" : `, ≤ ${cores(share.cpu_cap_cores)}`;
  const devices = (share.accelerators ?? []).map((each) => `, ${percent(each.fraction)} of ${each.id}`).join("");
  return `${percent(share.cpu_weight)}${cap}${devices}`;
}

/** The age of a job, or how long it took. */
export function jobTime(job) {
  if (isOver(job)) return duration(job.finished_seconds);
  return duration((Date.now() - new Date(job.submitted_at)) / 1000);
}

/** Load something whenever `keys` change, and after what happened meanwhile was missed; { value, error, again }. */
export function useLoad(load, keys) {
  const loads = useLive((state) => state.loads);
  const [result, setResult] = useState({ value: undefined, error: null });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let wanted = true;
    load().then(
      (value) => wanted && setResult({ value, error: null }),
      (error) => wanted && setResult((before) => ({ value: before.value, error })),
    );
    return () => {
      wanted = false;
    };
  }, [...keys, turn, loads]);
  return { ...result, again: () => setTurn((count) => count + 1) };
}

/** Call an action every so many seconds while the tab is seen. */
export function useEvery(seconds, action) {
  const latest = useRef(action);
  latest.current = action;
  useEffect(() => {
    const timer = setInterval(() => document.hidden || latest.current(), seconds * 1000);
    return () => clearInterval(timer);
  }, [seconds]);
}

/** Say something that was done, for a few seconds and for screen readers. */
export function tell(sentence) {
  change({ said: sentence });
  setTimeout(() => now().said === sentence && change({ said: "" }), 5000);
}

/** Whether who is signed in may change things. */
export const useMayChange = () => useLive((state) => state.session?.role !== "viewer");

/**
 * A button that asks before it acts, and says in the same place when it was refused.
 * @param {{label, name?, title, text, confirm?, danger?, field?: {label, value, min, max, options}, run, done}} props `name` is
 *   what it is called aloud where the label does not say of what; `run` gets the field's number, or which of its options; `done` is the
 *   sentence said afterwards.
 */
export function Action({ label, name, title, text, confirm = label, danger, look, field, run, done }) {
  const dialog = useRef(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const [value, setValue] = useState(field?.value);
  const open = () => {
    setError(null);
    setValue(field?.value);
    dialog.current.showModal();
  };
  const act = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await run(!field || field.options ? value : Number(value));
      dialog.current?.close();
      tell(done);
    } catch (problem) {
      setError(problem.missing ? { message: "This broker cannot do that yet." } : problem);
    }
    setBusy(false);
  };
  return html`<button type="button" class=${look ?? (danger ? "danger" : "")} aria-label=${name} onClick=${open}>
      ${label}</button>
    <dialog ref=${dialog} aria-label=${title}>
      <form onSubmit=${act}>
        <h2>${title}</h2><p>${text}</p>
        ${
          field?.options &&
          html`<label>${field.label}<select value=${value} onChange=${(event) => setValue(event.target.value)}>
            ${field.options.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>`
        }
        ${
          field &&
          !field.options &&
          html`<label>${field.label}<input type="number" required step="1" min=${field.min} max=${field.max}
          value=${value} onInput=${(event) => setValue(event.target.value)} /></label>`
        }
        ${error && html`<p class="refused" role="alert">${error.message}</p>`}
        <div class="dialog-buttons">
          <button type="button" onClick=${() => dialog.current.close()}>Leave it</button>
          <button type="submit" class=${danger ? "danger filled" : "filled"} disabled=${busy}>${confirm}</button>
        </div>
      </form>
    </dialog>`;
}

export const When = ({ iso }) => html`<time datetime=${iso}>${clock(iso)}</time>`;
