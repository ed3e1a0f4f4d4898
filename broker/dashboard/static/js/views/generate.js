// Has an endpoint generate: a prompt, and the answer as it comes, which can be stopped.
import { path, postForEvents } from "../api.js";
import { duration, milliseconds, plural } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { Problem } from "../parts.js";

const NOTHING = { text: "", tokens: 0, end: "" };
const ENDS = { stop: "It came to its end.", length: "It is as long as it may be.", stopped: "You stopped it." };

/** `field` is how the prompt is sent: `text_input`, or `input_ids` where the version has no tokenizer. */
export function Generate({ name, field, lock, headers }) {
  const [prompt, setPrompt] = useState("");
  const [most, setMost] = useState(64);
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const asking = useRef(null);
  useEffect(() => () => asking.current?.abort(), []);
  const isText = field === "text_input";
  const ask = async (event) => {
    event.preventDefault();
    const { signal } = (asking.current = new AbortController());
    const began = performance.now();
    let said = NOTHING;
    const tell = (more) => {
      said = { ...said, seconds: (performance.now() - began) / 1000, ...more };
      setAnswer(said);
    };
    const take = ({ error, model_version, output_ids, text_output, finish_reason = "" }) => {
      if (error) throw new Error(error);
      tell({
        version: model_version,
        text: said.text + (isText ? text_output : output_ids.map((id) => `${id} `).join("")),
        tokens: said.tokens + output_ids.length,
        first: said.first ?? (performance.now() - began) / 1000,
        end: finish_reason,
      });
    };
    setError(null);
    setAnswer(null);
    setBusy(true);
    try {
      const given = isText ? prompt : prompt.split(/[\s,]+/).filter(Boolean).map(Number);
      const body = { [field]: given, parameters: { max_tokens: Number(most) } };
      await postForEvents(`${path("endpoints", name)}/generate`, body, headers, signal, take);
      if (!said.end) throw new Error("The answer broke off before its end; ask again.");
    } catch (problem) {
      if (signal.aborted) tell({ end: "stopped" });
      else setError(problem);
    }
    setBusy(false);
  };
  return html`<form class="ask" onSubmit=${ask}>
    <label>Prompt${isText ? "" : ", as ids of tokens"}<textarea rows="3" spellcheck="false" required value=${prompt}
      placeholder=${isText ? "" : "1, 2, 3"} onInput=${(event) => setPrompt(event.target.value)}></textarea></label>
    <label>Tokens of the answer at most<input type="number" required step="1" min="1" value=${most}
      onInput=${(event) => setMost(event.target.value)} /></label>
    ${lock}
    <div class="actions"><button type="submit" class="filled" disabled=${busy}>Ask</button>
      ${busy && html`<button type="button" onClick=${() => asking.current.abort()}>Stop</button>`}</div>
  </form>
  ${error && html`<${Problem} error=${error} />`}
  <p role="status">${answer?.end && summary(answer)}</p>
  ${answer?.text && html`<pre class="log" tabindex="0" aria-label="Answer">${answer.text}</pre>`}`;
}

const time = (seconds) => (seconds < 1 ? milliseconds(seconds) : duration(seconds));

function summary({ version, tokens, seconds, first, end }) {
  if (!tokens) return ENDS[end];
  return `${plural(tokens, "token")} by version ${version} in ${time(seconds)}, the first after ${time(first)}. ${ENDS[end]}`;
}
