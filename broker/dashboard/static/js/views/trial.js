// The trial of a version beside the one that answers: asked for now and then, told in a card, marked in the curve of delays.
import { get, path } from "../api.js";
import { duration, milliseconds, percent, plural } from "../format.js";
import { html } from "../html.js";
import { Card, Facts, useEvery, useLoad, useMayChange } from "../parts.js";

const LOOK_SECONDS = 5;
const STATES = { RUNNING: "on trial", PROMOTED: "promoted", ROLLED_BACK: "rolled back" };

/** What the inference server says of the trial that runs or the last one; undefined where none is known. */
export function useTrial(endpoint) {
  const may = useMayChange() && endpoint.access !== "key" && endpoint.live_version != null && !endpoint.variants.length;
  const asked = useLoad(
    () => (may ? get(path("endpoints", endpoint.name, "canary")) : Promise.resolve(undefined)),
    [endpoint.name, endpoint.live_version, may],
  );
  useEvery(LOOK_SECONDS, asked.again);
  return asked.value?.canary ?? undefined;
}

/** What became of it, in words. */
export const trialText = (trial) => `version ${trial.version} ${STATES[trial.state] ?? trial.state}`;

export function Trial({ trial }) {
  const side = ({ answers, errors, mean_ms }) =>
    `${plural(answers, "answer")}${answers ? `, ${milliseconds(mean_ms / 1000)} in the mean` : ""}, ${errors} failed`;
  return html`<${Card} title=${`Trial of version ${trial.version}`}>
    <${Facts} facts=${[
      ["State", STATES[trial.state] ?? trial.state],
      ["Its part", `${percent(trial.fraction)} of the requests`],
      ["For", duration(trial.seconds)],
      [`Version ${trial.version}`, side(trial.new)],
      [`Version ${trial.against}`, side(trial.old)],
      ["Same answers", trial.compared.rows ? `${trial.compared.agreed} of ${trial.compared.rows} rows` : ""],
      ["Why", trial.reason],
    ]} />
  </${Card}>`;
}
