"""Small steps that the machines of a job, its runs and its deliveries are made of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.job_events import AbandonDelivery, Announce, JobEffect, RequestDelivery
from tiercel.core.events import StateChanged
from tiercel.core.jobs import TierState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tiercel.core.jobs import Job, JobState, TierStatus

Step = tuple["Job", "Sequence[JobEffect]"]


def enter(job: Job, state: JobState, reason: str) -> Step:
    """Go to a state, and say so if that is news."""
    if job.state is state and job.reason == reason:
        return job, ()
    return replace(job, state=state, reason=reason), (Announce(StateChanged(state, reason)),)


def with_run_over(job: Job) -> Job:
    """The job once its run, if it has one, is gone."""
    return job if job.run is None else replace(job, run=replace(job.run, active=False, move=None))


def with_tier(job: Job, tier: TierStatus) -> Job:
    """The job with one tier's status replaced; 0 is what is delivered beyond them."""
    if not tier.number:
        return replace(job, best=tier)
    tiers = list(job.tiers)
    tiers[tier.number - 1] = tier
    return replace(job, tiers=tuple(tiers))


def delivering(job: Job) -> tuple[TierStatus, ...]:
    """The tiers whose delivery is under way; with number 0 that of the best model beyond them."""
    beyond = () if job.best is None else (job.best,)
    return tuple(tier for tier in (*job.tiers, *beyond) if tier.state is TierState.REACHED)


def request_deliveries(job: Job) -> tuple[JobEffect, ...]:
    """Have what is under way delivered from where the job is now."""
    return tuple(RequestDelivery(tier) for tier in delivering(job))


def abandon_deliveries(job: Job, reason: str) -> tuple[JobEffect, ...]:
    """End what is under way and can never be delivered."""
    return tuple(AbandonDelivery(tier, reason) for tier in delivering(job))
