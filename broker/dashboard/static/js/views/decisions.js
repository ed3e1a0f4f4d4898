// What the scheduler decided about a job's or an endpoint's share, by which policy and because of what.
import { get } from "../api.js";
import { clock } from "../format.js";
import { html } from "../html.js";
import { Card, Loading, Reason, shareText, Table, useLoad } from "../parts.js";
import { Missing } from "./job_parts.js";

const TRIGGERS = {
  arrival: "a job came",
  exit: "a run ended",
  tier: "a tier was reached",
  node: "a node changed",
  interval: "it was time",
};

/** The decisions about what is at a path of the API; asked for again when the reason of its share is another. */
export function Decisions({ path, reason }) {
  const asked = useLoad(() => get(`${path}/explain`), [path, reason]);
  const decisions = asked.value?.decisions;
  if (decisions?.length === 0) return null;
  return html`<${Card} title="Decisions about its share" wide folds>
    ${
      asked.error
        ? html`<${Missing} error=${asked.error} what="decisions" />`
        : !decisions
          ? html`<${Loading} what="decisions" />`
          : html`<${Table} caption="Decisions, the newest first" tall
              head=${["At", "Policy", "Because of", "Node", "#Share", "Reason"]}
          rows=${decisions.map((each) => [
            clock(each.at),
            each.policy,
            TRIGGERS[each.trigger] ?? each.trigger,
            each.node_id,
            shareText(each.share),
            html`<${Reason} text=${each.share.reason} />`,
          ])} />`
    }
  </${Card}>`;
}
