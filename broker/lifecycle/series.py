"""Jobs that start again: each job of a series makes the next one when it ends, as part of the same step.

So there is always one of them that is not over, stored like any other, and never two: what survives a restart of the
broker, and what a tenant cancels, is that one job. The next one begins a period after this one began, or at the end of
this one if that comes later; what was missed meanwhile is not made up for.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.job import create
from tiercel.core.durations import in_words
from tiercel.core.jobs import Job, JobState

if TYPE_CHECKING:
    from tiercel.core.moments import Moment

LABEL = "tiercel/series"
"""Label of all jobs of a series but the first: its id."""


def series_of(job: Job) -> str:
    """What the jobs of one series have in common; empty for a job of none."""
    return job.spec.labels.get(LABEL, job.id) if job.spec.every_seconds is not None else ""


def next_of(before: Job, after: Job, job_id: str, now: Moment) -> Job | None:
    """The next job of a series, which a step makes that ends the present one; None where there is none.

    Args:
        before: The job before the step.
        after: The job after it.
        job_id: Id of the next one.
        now: The time.
    """
    period = after.spec.every_seconds
    ended = after.state.is_final and not before.state.is_final
    if not ended or period is None or after.state is JobState.CANCELLED:
        return None
    starts_at = max(after.submitted_at + period, now.at)
    spec = replace(after.spec, labels={**after.spec.labels, LABEL: series_of(after)})
    moment = datetime.fromtimestamp(starts_at, UTC)
    words = f"starts at {moment:%Y-%m-%d %H:%M:%S} UTC: every {in_words(period)}, after job {after.id}"
    job, _ = create(job_id, after.tenant, spec, starts_at, reason=words, warm_node=after.warm_node)
    return replace(job, starts_at=starts_at, queued=1)  # whoever feeds the endpoint by then goes first
