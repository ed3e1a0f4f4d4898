"""What must hold before a job that is over goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.series import series_of
from tiercel.core.errors import wrong_field
from tiercel.core.jobs import JobState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tiercel.core.jobs import Job


def check_resumable(job: Job, jobs: Iterable[Job]) -> None:
    """Check that a job that is over may go on, beside the others of its series; ``jobs`` are all that are not over.

    Raises:
        InvalidSpecError: Every tier of it is delivered, it has used all that a retraining may, or another job of its
            series is not over.
    """
    if job.state is JobState.COMPLETED:
        raise wrong_field(
            "job_id",
            f"every tier of job {job.id!r} is delivered, so that there is nothing to resume; submit a job with further "
            "tiers, or train it again: 'tiercel retry --from-scratch'",
        )
    if job.is_spent and job.retrains is not None:
        hours = job.retrains.budget_seconds / 3600
        raise wrong_field(
            "job_id",
            f"the {hours:.3g} core-hours that this retraining may use are spent; train it again: "
            "'tiercel retry --from-scratch'",
        )
    series = series_of(job)
    other = next((each for each in jobs if series and series_of(each) == series and not each.state.is_final), None)
    if other is not None:
        raise wrong_field(
            "job_id", f"job {other.id!r} of the same series (every) is {other.state.value}; cancel it first"
        )
