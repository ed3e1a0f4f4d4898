"""Where a job stands among its tiers."""

from __future__ import annotations

from tiercel.broker.scheduling.interface import JobView
from tiercel.core.jobs import TierState, TierStatus

# A tuple and no set: looking for one of two by identity is faster than hashing.
_NOT_REACHED = (TierState.PENDING, TierState.UNREACHABLE)


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
