"""Where a job stands among its tiers."""

from __future__ import annotations

from tiercel.broker.scheduling.interface import JobView
from tiercel.core.jobs import TierState, TierStatus

# A tuple and no set: looking for one of two by identity is faster than hashing.
_NOT_REACHED = (TierState.PENDING, TierState.UNREACHABLE)

# Whoever is in front and has not handed its model over after so long waits for something else: a trial of the new
# version, say, or the inference server.
HANDED_OVER_BY_THEN_SECONDS = 10.0


def reached_tiers(job: JobView) -> int:
    """How many tiers the job has reached, the easiest first; a tier whose delivery failed was reached all the same."""
    for index, tier in enumerate(job.tiers):
        if tier.state in _NOT_REACHED:
            return index
    return len(job.tiers)


def next_tier(job: JobView) -> TierStatus | None:
    """The easiest tier that is not reached yet; None when all are."""
    for tier in job.tiers:
        if tier.state in _NOT_REACHED:
            return tier
    return None


def delivering_tier(job: JobView) -> TierStatus | None:
    """The easiest tier that is reached and not delivered yet; None when there is none."""
    for tier in job.tiers:
        if tier.state is TierState.REACHED:
            return tier
    return None


def handing_over(job: JobView, now: float, within: float = HANDED_OVER_BY_THEN_SECONDS) -> TierStatus | None:
    """The tier whose model a job hands over now, which takes little CPU and somebody waits for; None if there is none.

    Args:
        job: The job.
        now: Seconds since the Unix epoch.
        within: Seconds since it reached the tier after which it is held to wait for something else than CPU.
    """
    tier = delivering_tier(job)
    if tier is None or tier.reached_seconds is None:
        return None
    return tier if now - job.submitted_at - tier.reached_seconds <= within else None


def is_promised(job: JobView) -> bool:
    """Whether it was admitted with a hard deadline that it has not kept yet."""
    return any(tier.tier.hard and tier.state in _NOT_REACHED for tier in job.tiers)
