// What can be done about a job; each asks first, and says in place why it was refused.
import { path, post } from "../api.js";
import { isOver, jobName } from "../format.js";
import { html } from "../html.js";
import { keepJobs } from "../live.js";
import { Action, useMayChange } from "../parts.js";
import { go, link } from "../route.js";

export function JobActions({ job }) {
  const may = useMayChange();
  if (!may) return html`<p class="muted">A viewer may look, not change.</p>`;
  const name = jobName(job);
  const act = (verb, body) => async () => {
    const told = await post(`${path("jobs", job.id)}/${verb}`, body);
    if (told.id) keepJobs([told]);
  };
  const priority = async (value) => act("priority", { priority: value })();
  const again = async () => {
    const made = await post(`${path("jobs", job.id)}/retry`, { from_scratch: true });
    keepJobs([made]);
    go(link("jobs", made.id));
  };
  const over = isOver(job);
  const suspended = job.state === "suspended";
  return html`<div class="actions">
    ${
      !over &&
      !suspended &&
      html`<${Action} label="Suspend" title=${`Suspend ${name}?`}
        text="It saves a checkpoint, gives back what it holds, and waits until somebody resumes it."
      run=${act("suspend")} done=${`${name} is being suspended.`} />`
    }
    ${
      suspended &&
      html`<${Action} label="Resume" title=${`Resume ${name}?`} text="It goes on from its last checkpoint."
      run=${act("resume")} done=${`${name} goes on.`} />`
    }
    ${
      over &&
      job.state !== "completed" &&
      html`<${Action} label="Retry" title=${`Retry ${name}?`}
        text="Another run of the same job begins from its last checkpoint. What it delivered stays."
      run=${act("retry")} done=${`${name} is tried again.`} />`
    }
    ${
      over &&
      html`<${Action} label="Train again" title=${`Train ${name} again from the beginning?`}
        text="That is a new job with the same spec. What this one delivered stays its own."
      run=${again} done=${`${name} trains again, as a new job.`} />`
    }
    ${
      !over &&
      html`<${Action} label="Priority" title=${`Priority of ${name}`}
        text="Among jobs of the same tenant, those with more go first."
      field=${{ label: "Priority, -100 to 100", value: job.spec.priority, min: -100, max: 100 }} confirm="Set priority"
      run=${priority} done=${`${name} has another priority.`} />`
    }
    ${
      !over &&
      html`<${Action} label="Cancel" danger title=${`Cancel ${name}?`}
        text="Its training ends. What it has delivered keeps serving." confirm="Cancel the job"
      run=${act("cancel")} done=${`${name} is being cancelled.`} />`
    }
  </div>`;
}
