"""What the runs of a job found around them: the environment of their packages, the image of their container.

A node says it with the first word of a run, once more with each reconnection, and not at all where it does not know any
more. Kept is where it changes from one run to the next, so that it can be told of any version which run's it was.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.core.runs import RunEnvironment

if TYPE_CHECKING:
    from tiercel.broker.lifecycle.job_events import RunIsAlive
    from tiercel.core.jobs import Job
    from tiercel.core.runs import Run

# Of a job; the oldest gives way. Runs of one node mostly have the same.
MAX_ENVIRONMENTS = 16
_KEY = re.compile(r"[0-9a-f]{8,64}")
_IMAGE_ID = re.compile(r"sha256:[0-9a-f]{64}")


def with_environment(job: Job, run: Run, event: RunIsAlive) -> Job:
    """The job that knows what its run has found; what cannot be is not taken."""
    key = event.environment if _KEY.fullmatch(event.environment) else ""
    image_id = event.image_id if _IMAGE_ID.fullmatch(event.image_id) else ""
    known = job.environments[-1] if job.environments else RunEnvironment(0)
    if (key, image_id) == (known.key, known.image_id):
        return job
    if known.run == run.number:  # it said so before; a run has one environment
        return job
    return replace(job, environments=(*job.environments, RunEnvironment(run.number, key, image_id))[-MAX_ENVIRONMENTS:])


def environment_of(job: Job, run_number: int) -> RunEnvironment:
    """What a run of a job found around it; empty where that is not known.

    Args:
        job: The job.
        run_number: Of the run, from 1.
    """
    return next((each for each in reversed(job.environments) if each.run <= run_number), RunEnvironment(0))
