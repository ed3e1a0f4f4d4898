// Asks an endpoint: numbers typed, an image dropped and made the tensor that the model takes, or a prompt.
import { get, path, postWithHeaders } from "../api.js";
import { number } from "../format.js";
import { html, useRef, useState } from "../html.js";
import { imageShape, RANGES, tensorOf } from "../images.js";
import { Card, Loading, Part, Problem, Table, useLoad } from "../parts.js";
import { Generate } from "./generate.js";
import { Missing } from "./job_parts.js";

const BARS_MOST = 24;

export function Ask({ endpoint }) {
  const [key, setKey] = useState("");
  const lock =
    endpoint.access === "key" &&
    html`<label>Key of this endpoint<input type="password" autocomplete="off" value=${key}
      onInput=${(event) => setKey(event.target.value)} /></label>`;
  const more = { name: endpoint.name, lock, headers: key ? { "x-tiercel-key": key } : {} };
  const asked = useLoad(
    () => get(`${path("endpoints", endpoint.name)}/metadata`),
    [endpoint.name, endpoint.live_version],
  );
  return html`<${Card} title="Ask it">
    ${
      asked.error
        ? html`<${Missing} error=${asked.error} what="what it takes" />`
        : !asked.value
          ? html`<${Loading} what="what it takes" />`
          : asked.value.parameters?.prompt
            ? html`<${Generate} field=${asked.value.parameters.prompt} ...${more} />`
            : html`<${Form} inputs=${asked.value.inputs} ...${more} />`
    }
  </${Card}>`;
}

function Form({ name, inputs, lock, headers }) {
  const [texts, setTexts] = useState(() => Object.fromEntries(inputs.map((input) => [input.name, ""])));
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const set = (input, text) => setTexts((before) => ({ ...before, [input.name]: text }));
  const ask = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const body = { inputs: inputs.map((input) => tensor(input, texts[input.name])) };
      const told = await postWithHeaders(`${path("endpoints", name)}/infer`, body, headers);
      setAnswer({ ...told.content, milliseconds: told.headers.get("x-tiercel-milliseconds") });
    } catch (problem) {
      setAnswer(null);
      setError(problem);
    }
    setBusy(false);
  };
  return html`<form class="ask" onSubmit=${ask}>
    ${inputs.map(
      (input) => html`<${Input} key=${input.name} input=${input} text=${texts[input.name]}
      set=${(text) => set(input, text)} />`,
    )}
    ${lock}
    <button type="submit" class="filled" disabled=${busy}>Ask</button>
  </form>
  ${error && html`<${Problem} error=${error} />`}
  <div role="status">${answer && html`<${Answer} answer=${answer} />`}</div>`;
}

const shapeText = (input) => `${input.datatype} [${input.shape.map((axis) => (axis < 0 ? "any" : axis)).join(", ")}]`;
const sizeOf = (input) => input.shape.reduce((product, axis) => product * (axis < 0 ? 1 : axis), 1);

function Input({ input, text, set }) {
  const shape = imageShape(input);
  const random = () => set(Array.from({ length: sizeOf(input) }, () => +Math.random().toFixed(3)).join(", "));
  return html`<fieldset><legend>${input.name} <span class="muted">${shapeText(input)}</span></legend>
    <label>Numbers, in rows one after the other<textarea rows="3" spellcheck="false" required value=${text}
      placeholder=${`${sizeOf(input)} numbers, or a multiple of them`} onInput=${(event) => set(event.target.value)}>
        </textarea></label>
    <div class="ask-fill"><button type="button" class="quiet"
      onClick=${() => set(Array(sizeOf(input)).fill(0).join(", "))}>All zeros</button>
      <button type="button" class="quiet" onClick=${random}>Random</button></div>
    ${shape && html`<${Drop} shape=${shape} set=${set} />`}
  </fieldset>`;
}

/** A place to drop an image; what the model will see is shown beside it. */
function Drop({ shape, set }) {
  const canvas = useRef(null);
  const picture = useRef(null);
  const [range, setRange] = useState("0 to 1");
  const [inverted, setInverted] = useState(false);
  const [over, setOver] = useState(false);
  const [problem, setProblem] = useState("");
  const use = (options) => picture.current && set(tensorOf(canvas.current, picture.current, shape, options).join(", "));
  const take = async (file) => {
    try {
      picture.current = await createImageBitmap(file);
      setProblem("");
      use({ range, inverted });
    } catch {
      setProblem("This file is not an image that the browser can read.");
    }
  };
  const drop = (event) => {
    event.preventDefault();
    setOver(false);
    if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
  };
  return html`<div class=${over ? "drop over" : "drop"} onDragOver=${(event) => {
    event.preventDefault();
    setOver(true);
  }} onDragLeave=${() => setOver(false)} onDrop=${drop}>
    <canvas ref=${canvas} width=${shape.width} height=${shape.height} role="img"
      aria-label="The image as the model sees it"></canvas>
    <div><label>Drop an image here, or choose one<input type="file" accept="image/*"
      onChange=${(event) => event.target.files[0] && take(event.target.files[0])} /></label>
      <p class="muted">Scaled to ${shape.width} × ${shape.height}, ${shape.channels === 1 ? "grey" : "colour"}.</p>
      <label class="inline">Values <select value=${range} onChange=${(event) => {
        setRange(event.target.value);
        use({ range: event.target.value, inverted });
      }}>
        ${Object.keys(RANGES).map((each) => html`<option key=${each}>${each}</option>`)}</select></label>
      <label class="inline"><input type="checkbox" checked=${inverted} onChange=${(event) => {
        setInverted(event.target.checked);
        use({ range, inverted: event.target.checked });
      }} /> Light on dark instead of dark on light</label>
      ${problem && html`<p class="refused" role="alert">${problem}</p>`}</div>
  </div>`;
}

/** The tensor of the Open Inference Protocol that a text of numbers is; an axis of any length takes what there is. */
function tensor(input, text) {
  const words = text
    .replace(/[[\]]/g, " ")
    .split(/[\s,;]+/)
    .filter(Boolean);
  const isText = input.datatype === "BYTES";
  const data = isText ? words : words.map(Number);
  if (!isText && data.some(Number.isNaN))
    throw new Error(`${input.name}: “${words.find((word) => Number.isNaN(Number(word)))}” is not a number.`);
  const size = sizeOf(input);
  const free = input.shape.some((axis) => axis < 0);
  if (!data.length || data.length % size || (!free && data.length !== size)) {
    throw new Error(
      `${input.name} takes ${size} numbers${free ? " or a multiple of them" : ""}, and these are ${data.length}.`,
    );
  }
  const firstFree = input.shape.findIndex((axis) => axis < 0);
  const shape = input.shape.map((axis, index) => (axis >= 0 ? axis : index === firstFree ? data.length / size : 1));
  return { name: input.name, datatype: input.datatype, shape, data };
}

function Answer({ answer }) {
  return html`<div class="answer"><p><strong>Answered</strong>
    ${answer.model_version ? ` by version ${answer.model_version}` : ""}
    ${answer.milliseconds ? ` in ${number(Number(answer.milliseconds))} ms` : ""}.</p>
    ${answer.outputs.map((output) => html`<${Output} key=${output.name} output=${output} />`)}</div>`;
}

function Output({ output }) {
  const values = output.data.slice(0, BARS_MOST);
  const one =
    output.data.length <= BARS_MOST && values.length > 1 && values.every((value) => typeof value === "number");
  const most = Math.max(...values);
  const least = Math.min(0, ...values);
  const title = html`<h3>${output.name} <span class="muted">${output.datatype} [${output.shape.join(", ")}]</span>
    </h3>`;
  if (!one) {
    const more = output.data.length - 200;
    return html`${title}<pre class="log" tabindex="0" aria-label=${`Values of ${output.name}`}>${output.data
      .slice(0, 200)
      .map((value) => (typeof value === "number" ? number(value) : value))
      .join(", ")}${more > 0 ? `\n… and ${more} more` : ""}</pre>`;
  }
  return html`${title}<${Table} caption=${`Values of ${output.name}`} head=${["#Index", "#Value", "How much"]}
    rows=${values.map((value, index) => [
      index,
      html`<span class=${value === most ? "most" : ""}>${number(value)}</span>`,
      html`<${Part} part=${most > least ? (value - least) / (most - least) : 0} />`,
    ])} />`;
}
