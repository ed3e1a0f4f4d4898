"""What a job delivers beyond its tiers: the best model at the end, and on request while it trains."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.job_events import RequestDelivery
from tiercel.broker.lifecycle.job_steps import Step, delivering
from tiercel.core.jobs import Job, Tier, TierState, TierStatus

if TYPE_CHECKING:
    from tiercel.broker.lifecycle.job_events import DeliveryEnded

# Models that a job delivers beyond its tiers while it trains; after that the best one follows at the end.
MAX_WHILE_IT_TRAINS = 1_000


def ship_best(job: Job, value: float, now: float) -> Step:
    """Ask for the best model if it is worth it.

    Args:
        job: The job.
        value: Metric of the best model that its run has.
        now: Seconds since the Unix epoch.
    """
    if job.spec.ship.only_tiers or job.stop_outcome is not None or delivering(job) or not _is_due(job, value, now):
        return job, ()
    number, exceeded = job.best_deliveries + 1, job.shipped_value if job.shipped_value is not None else value
    wanted = TierStatus(0, Tier(exceeded), TierState.REACHED, reached_value=value)
    return replace(job, best=wanted, best_deliveries=number), (RequestDelivery(wanted),)


def _is_due(job: Job, value: float, now: float) -> bool:
    last = job.shipped_value
    if last is None or value == last or not job.spec.direction.reaches(value, last):
        return False
    ship = job.spec.ship
    if job.offered_value is not None:
        return True
    if job.best_deliveries >= MAX_WHILE_IT_TRAINS:
        return False
    if ship.every is not None and abs(value - last) >= ship.every:
        return True
    return ship.best_every_seconds is not None and now - (job.shipped_at or now) >= ship.best_every_seconds


def shipped(job: Job, event: DeliveryEnded, now: float) -> Job:
    """A model was delivered, of a tier or beyond: what comes next has to be better."""
    value = event.value
    if event.version is None or value is None:
        return job
    best = value if job.shipped_value is None else job.spec.direction.better(job.shipped_value, value)
    return replace(job, shipped_value=best, shipped_at=now)
