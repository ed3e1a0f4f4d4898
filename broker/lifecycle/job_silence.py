"""For how long a run has been silent, and when that means that it hangs.

Only the time counts that it would have taken at full speed. A run that waits at a floor of its node reports seldom, and
that is its scheduler's doing: at 1 % of its speed, an epoch of ten seconds takes a quarter of an hour. One that hangs
there is found out when its turn comes, and until then takes nothing from anybody.

All times here are those of the clock that counts only while the broker is alive: nobody has been silent while nobody
listened.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.core.jobs import Silence

if TYPE_CHECKING:
    from tiercel.core.jobs import Job
    from tiercel.core.shares import Share


def with_share(job: Job, share: Share, alive: float) -> Job:
    """The job with what it may use from now on; the silence until now counts by what it could use until now."""
    if job.silence is None:
        return replace(job, share=share)
    uncounted = alive - job.silence.since - silent_seconds(job, alive)
    return replace(job, share=share, silence=Silence(job.silence.since, alive, uncounted))


def heard(job: Job, alive: float) -> Job:
    """The job, its silence over."""
    return replace(job, run_heard=True, silence=Silence(alive, alive))


def unheard(job: Job) -> Job:
    """The job with a run that nobody has heard yet."""
    return replace(job, run_heard=False, silence=None)


def silent_seconds(job: Job, alive: float) -> float:
    """For how many seconds at full speed its run has been silent; 0 for one that was never heard."""
    silence = job.silence
    if silence is None:
        return 0.0
    before = silence.share_since - silence.since - silence.uncounted_seconds
    return before + (alive - silence.share_since) * _speed(job)


def hangs_at(job: Job) -> float:
    """When its silence will count as hanging if nothing changes; infinite for one that was never heard."""
    silence = job.silence
    if silence is None:
        return math.inf
    left = job.spec.report_timeout_seconds - silent_seconds(job, silence.share_since)
    return silence.share_since + left / _speed(job)


def _speed(job: Job) -> float:
    return job.share.speed if job.share is not None else 1.0
