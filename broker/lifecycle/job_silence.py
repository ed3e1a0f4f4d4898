"""For how long a run has been silent, and when that means that it hangs.

Only the time counts that it would have taken at full speed. A run that waits at a floor of its node reports seldom, and
that is its scheduler's doing: at 1 % of its speed, an epoch of ten seconds takes a quarter of an hour. One that hangs
there is found out when its turn comes, and until then takes nothing from anybody.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiercel.broker.domain.jobs import Job
    from tiercel.broker.domain.shares import Share


def with_share(job: Job, share: Share, now: float) -> Job:
    """The job with what it may use from now on; the silence until now counts by what it could use until now."""
    if job.last_heard_at is None:
        return replace(job, share=share)
    counted = silent_seconds(job, now)
    return replace(job, share=share, share_since=now, uncounted_seconds=now - job.last_heard_at - counted)


def heard(job: Job, now: float) -> Job:
    """The job, its silence over."""
    return replace(job, last_heard_at=now, share_since=now, uncounted_seconds=0.0)


def silent_seconds(job: Job, now: float) -> float:
    """For how many seconds at full speed its run has been silent; 0 for one that was never heard."""
    if job.last_heard_at is None:
        return 0.0
    since = _since(job, job.last_heard_at)
    return since - job.last_heard_at - job.uncounted_seconds + (now - since) * _speed(job)


def hangs_at(job: Job) -> float:
    """When its silence will count as hanging if nothing changes; infinite for one that was never heard."""
    if job.last_heard_at is None:
        return math.inf
    since = _since(job, job.last_heard_at)
    return since + (job.spec.report_timeout_seconds - silent_seconds(job, since)) / _speed(job)


def _since(job: Job, last_heard_at: float) -> float:
    """Since when it could use what it may use now, without a report."""
    return max(last_heard_at, job.share_since) if job.share_since is not None else last_heard_at


def _speed(job: Job) -> float:
    return job.share.speed if job.share is not None else 1.0
