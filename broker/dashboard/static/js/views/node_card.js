// One machine: its CPU, memory and accelerators, each as one bar that is divided between training and serving.
import { bytes, number, percent, plural, rate } from "../format.js";
import { html } from "../html.js";
import { Card } from "../parts.js";
import { link } from "../route.js";

const TRAINING_STEPS = 4;
const LABEL_FROM = 0.14; // a narrower segment has no room for its name; the list below has it

/** `linked` says whether its jobs and endpoints have pages for who is signed in. */
export function NodeCard({ node, jobs, alone, linked }) {
  const loads = loadsOf(node, jobs);
  const memory = loads.map((load) => ({
    load,
    part: (load.memory_bytes ?? 0) / node.memory_bytes,
    text: bytes(load.memory_bytes),
  }));
  const cpu = loads.map((load) => ({ load, part: load.part, text: percent(load.part) }));
  const aside = html`<span class=${node.online ? "muted" : "offline"}>
    ${node.online ? nodeText(node) : "◌ does not answer"}</span>`;
  return html`<${Card} title=${node.id} aside=${aside} id=${`node-${node.id}`} wide=${alone}>
    ${node.drain && node.drain !== "no" && html`<p class="note">Drained: nothing new starts here.</p>`}
    <${Bar} name="CPU" of=${`${number(node.cpu_cores)} cores`} segments=${cpu} />
    <${Bar} name="Memory" of=${bytes(node.memory_bytes)} segments=${memory} />
    ${node.accelerators.map(
      (device) => html`<${Bar} key=${device.id} name=${device.name} of=${deviceText(device)}
      segments=${loads.flatMap((load) => held(load, device))} />`,
    )}
    ${
      loads.length === 0
        ? html`<p class="muted">Nothing runs here.</p>`
        : html`<ul class="loads">${loads.map(
            (load) => html`<li key=${load.kind + load.id}>
      <span class=${`swatch ${load.look}`} aria-hidden="true"></span>
      ${linked && load.kind !== "others" ? html`<a href=${pageOf(load)}>${load.name}</a>` : load.name}
      ${load.kind !== "others" && html`<span class="muted">${doing(load)}</span>`}<span class="load-part">${percent(load.part)}</span>
    </li>`,
          )}</ul>`
    }
  </${Card}>`;
}

const pageOf = ({ kind, id }) => link(kind === "endpoint" ? "endpoints" : "jobs", id);
const doing = (load) =>
  load.kind === "endpoint" ? `serves ${rate(load.requests_per_second)}/s` : load.arriving ? "arrives" : "trains";

/**
 * What is on a machine, each with the part of its CPU: of a job what it is given, of an endpoint what it takes, or is
 * given where a policy limits it; what other tenants have is one.
 */
function loadsOf(node, jobs) {
  let step = 0;
  const own = (node.workloads ?? []).map((load) =>
    load.kind === "endpoint"
      ? { ...load, name: load.id, look: "serving", part: (load.used_cpu_cores ?? 0) / node.cpu_cores }
      : {
          ...load,
          name: jobs.get(load.id)?.spec.name || load.name || load.id,
          look: `training-${step++ % TRAINING_STEPS}`,
          part: load.cpu_weight ?? 0,
        },
  );
  const { others } = node;
  if (!others?.jobs) return own;
  return [
    ...own,
    {
      ...others,
      kind: "others",
      id: "",
      name: plural(others.jobs, "job of another tenant", "jobs of other tenants"),
      look: "others",
      part: others.cpu_weight,
    },
  ];
}

const nodeText = (node) =>
  [
    plural(node.cpu_cores, "core"),
    bytes(node.memory_bytes),
    node.accelerators.length ? plural(node.accelerators.length, "accelerator") : "",
    ...Object.entries(node.labels).map(([name, value]) => `${name}=${value}`),
  ]
    .filter(Boolean)
    .join(" · ");

const deviceText = (device) =>
  device.problem ||
  [bytes(device.memory_bytes), device.utilisation == null ? "" : `${percent(device.utilisation)} busy`]
    .filter(Boolean)
    .join(", ");

const held = (load, device) =>
  (load.accelerators ?? [])
    .filter((each) => each.id === device.id)
    .map((each) => ({ load, part: each.fraction, text: percent(each.fraction) }));

/** A stacked bar; what is told in words is the same as what is drawn. */
function Bar({ name, of, segments }) {
  const total = segments.reduce((sum, segment) => sum + segment.part, 0);
  const scale = total > 1 ? 1 / total : 1; // shares are rounded, and may add up to a little more
  const shown = segments.filter((segment) => segment.part > 0.001);
  const words = shown.map((segment) => `${segment.load.name} ${segment.text}`).join(", ") || "free";
  return html`<div class="bar">
    <div class="bar-head"><span>${name}</span><span class="muted">${of}</span><span class="bar-total">
      ${percent(Math.min(1, total))}</span></div>
    <div class="bar-track" role="img" aria-label=${`${name}, ${of}: ${words}`}>
      ${shown.map(
        (segment) => html`<span key=${segment.load.kind + segment.load.id} class=${`segment ${segment.load.look}`}
        style=${{ width: `${100 * segment.part * scale}%` }} title=${`${segment.load.name}: ${segment.text}`}>
        ${segment.part * scale >= LABEL_FROM && html`<span>${segment.load.name}</span>`}</span>`,
      )}
    </div>
  </div>`;
}
