"""Where a job stands on its ladder of tiers."""

from __future__ import annotations

from tiercel.broker.domain.jobs import TierState, TierStatus
from tiercel.broker.scheduling.interface import JobView

_NOT_REACHED = frozenset({TierState.PENDING, TierState.UNREACHABLE})


def reached_tiers(job: JobView) -> int:
    """How many tiers the job has reached, the easiest first; a tier whose delivery failed was reached all the same."""
    tier = next_tier(job)
    return len(job.tiers) if tier is None else job.tiers.index(tier)


def next_tier(job: JobView) -> TierStatus | None:
    """The easiest tier that is not reached yet; None when all are."""
    return next((tier for tier in job.tiers if tier.state in _NOT_REACHED), None)
