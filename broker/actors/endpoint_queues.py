"""Jobs that are queued for an endpoint which another job feeds: whose turn it is, and what the others wait for.

Looked at anew every time, from the jobs alone: so it does not matter how the job in front ended, whether one in between
was cancelled, or whether the broker was started again meanwhile. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tiercel.core.jobs import Job, JobSpec

# Of one endpoint, or of one variant of it.
MAX_QUEUED = 16


class QueuePlace(NamedTuple):
    """Where a job stands that is queued."""

    number: int  # by which the queue is sorted, > 0
    words: str  # what it waits for


class QueueSteps(NamedTuple):
    """What the queued jobs are to be told."""

    turns: tuple[Job, ...]  # those whose turn it is
    waiting: dict[str, str]  # what each of the others waits for, by its id


def is_asleep(job: Job, now: float) -> bool:
    """Whether a job, the next one of a series, begins later and holds its endpoint for nobody until then."""
    return job.starts_at is not None and job.starts_at > now


def queue_steps(jobs: Iterable[Job], now: float) -> QueueSteps:
    """Whose turn it is among the queued jobs.

    Args:
        jobs: Those of all tenants that something can still happen to.
        now: Seconds since the Unix epoch.
    """
    unfinished = [job for job in jobs if not job.state.is_final and not is_asleep(job, now)]
    queued = sorted((job for job in unfinished if job.queued), key=lambda job: (job.submitted_at, job.queued, job.id))
    if not queued:
        return QueueSteps((), {})
    feeding = {_place(job.spec): job for job in unfinished if not job.queued}
    turns: list[Job] = []
    waiting: dict[str, str] = {}
    ahead: dict[tuple[str, str], int] = {}
    for job in queued:
        place = _place(job.spec)
        if place not in feeding:
            turns.append(job)
            feeding[place] = job
            continue
        ahead[place] = ahead.get(place, 0) + 1
        waiting[job.id] = _words(feeding[place], ahead[place] - 1)
    return QueueSteps(tuple(turns), waiting)


def last_place(feeding: Job, queued: Sequence[Job]) -> QueuePlace:
    """Where a new job would be queued.

    Args:
        feeding: The job that feeds the endpoint.
        queued: Those that are queued for it already.
    """
    return QueuePlace(max((job.queued for job in queued), default=0) + 1, _words(feeding, len(queued)))


def _words(feeding: Job, ahead: int) -> str:
    """What a job waits for that is queued behind so many others."""
    behind = "" if not ahead else f", and {ahead} more {'jobs' if ahead > 1 else 'job'} queued before this one"
    return f"waits until job {feeding.id} is over, which feeds endpoint {feeding.spec.endpoint!r}{behind}"


def _place(spec: JobSpec) -> tuple[str, str]:
    return spec.endpoint, spec.variant
