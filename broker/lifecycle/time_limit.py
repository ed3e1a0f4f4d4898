"""What happens when the runs of a job have existed for as long as they may, which :mod:`.duration` counts.

The same happens to a retraining whose runs have used all that it may (:attr:`.Job.is_spent`).

The run is told to finish: its training ends as after its last epoch, and what it has is delivered. One that does not
end by itself is stopped like any other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.duration import counted, finishing_words, run_seconds
from tiercel.broker.lifecycle.job import stop_running
from tiercel.broker.lifecycle.job_events import DeclareRun
from tiercel.broker.lifecycle.steps import Step, enter
from tiercel.core.jobs import Job, JobState

if TYPE_CHECKING:
    from tiercel.core.moments import Moment

# How long a run may take to end its training and to hand over what it has; then it is stopped.
FINISH_SECONDS = 120.0
# How often the time of a run is written down although nothing else happens.
COUNTED_EVERY_SECONDS = 60.0


def duration_ticked(job: Job, now: Moment) -> Step:
    """Time passed: all that the job's runs have may be over, or all that they may use be spent."""
    run, limit = job.run, job.spec.max_duration_seconds
    if (limit is None and job.retrains is None) or run is None or not run.active or run.time.alive is None:
        return job, ()
    if job.stop_outcome is not None or run.is_leaving:  # it is told to stop, and the next run counts on
        return job, ()
    seconds = run_seconds(run, now)
    if run.finishing_from is not None:
        if seconds - run.finishing_from <= FINISH_SECONDS:
            return job, ()
        return stop_running(job, JobState.COMPLETED, f"{finishing_words(job)}; it did not within {FINISH_SECONDS:g} s")
    if not job.is_spent and (limit is None or job.earlier.seconds + seconds < limit):
        is_due = seconds - run.time.seconds >= COUNTED_EVERY_SECONDS
        return (replace(job, run=counted(run, now)) if is_due else job), ()
    job = replace(job, run=replace(counted(run, now), finishing_from=seconds))
    words = finishing_words(job) if job.state is JobState.RUNNING else job.reason
    job, effects = enter(job, job.state, words)
    return job, (*effects, DeclareRun())
