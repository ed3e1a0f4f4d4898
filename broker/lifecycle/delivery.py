"""What a job delivers, as pure steps of the job: its tiers, and beyond them its best model.

The states of a tier are drawn in ``README.md``. A job asks for a delivery and hears how it ended; the stages in between
are its endpoint's (:mod:`.endpoint`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.job import fail_running, finish_when_settled, settle, stop_running
from tiercel.broker.lifecycle.job_events import Announce, JobEffect, RequestDelivery, Reschedule
from tiercel.broker.lifecycle.steps import Step, delivering, with_tier
from tiercel.core.events import TierChanged
from tiercel.core.figures import number
from tiercel.core.jobs import Job, JobState, Tier, TierState, TierStatus

if TYPE_CHECKING:
    from tiercel.broker.lifecycle.job_events import DeliveryEnded
    from tiercel.core.moments import Moment

# Models that a job delivers beyond its tiers while it trains; after that the best one follows at the end.
MAX_WHILE_IT_TRAINS = 1_000
_OPEN = {TierState.PENDING, TierState.UNREACHABLE}


# --- Tiers that are reached -------------------------------------------------------------------------------------------


def feasibility_changed(job: Job, reason: str) -> Step:
    """The scheduler holds the next tier for out of reach, or (reason empty) for within reach again."""
    number = next((tier.number for tier in job.tiers if tier.state in _OPEN), None)
    if number is None or job.state.is_final:
        return job, ()
    tier = job.tiers[number - 1]
    judged = replace(tier, state=TierState.UNREACHABLE if reason else TierState.PENDING, reason=reason)
    # The words contain figures that change with every report; only the judgement itself is news.
    if judged.state is tier.state:
        return job, ()
    return with_tier(job, judged), (Announce(TierChanged(judged)),)


def reach_tiers(job: Job, value: float, at: float) -> Step:
    """Ask for the model of each tier whose target a report meets.

    Args:
        job: The job.
        value: What was reported.
        at: When, seconds since the Unix epoch.
    """
    if job.stop_outcome is not None:
        return job, ()
    effects: list[JobEffect] = []
    for tier in job.tiers:
        if tier.state in _OPEN and job.spec.direction.reaches(value, tier.tier.target):
            reached = replace(
                tier,
                state=TierState.REACHED,
                reached_value=value,
                reached_seconds=max(0.0, at - job.submitted_at),
                reason="",
            )
            job = with_tier(job, reached)
            effects += [Announce(TierChanged(reached)), RequestDelivery(reached)]
    if effects:
        effects.append(Reschedule("tier"))
    return job, effects


# --- The best model beyond them ---------------------------------------------------------------------------------------


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
    if _offered_value(job) is not None:
        return True
    if job.best_deliveries >= MAX_WHILE_IT_TRAINS:
        return False
    if ship.every is not None and abs(value - last) >= ship.every:
        return True
    return ship.best_every_seconds is not None and now - (job.shipped_at or now) >= ship.best_every_seconds


def _offered_value(job: Job) -> float | None:
    return job.run.offered_value if job.run is not None else None


# --- Deliveries that end ----------------------------------------------------------------------------------------------


def delivery_ended(job: Job, event: DeliveryEnded, now: Moment) -> Step:
    """A tier was delivered, or its delivery failed."""
    if not event.tier:
        return _best_ended(job, event, now)
    tier = job.tiers[event.tier - 1]
    if tier.state is not TierState.REACHED:
        return job, ()
    job = _shipped(job, event, now.at)
    if event.version is not None:
        ended = replace(
            tier,
            state=TierState.DELIVERED,
            delivered_value=event.value,
            delivered_seconds=max(0.0, min(event.at, now.at) - job.submitted_at),
            version=event.version,
            reason=event.reason,
        )
    else:
        ended = replace(tier, state=TierState.FAILED, reason=event.reason)
    job = with_tier(job, ended)
    effects: list[JobEffect] = [Announce(TierChanged(ended))]
    if job.run_active:
        effects.append(Reschedule("tier"))  # it kept its place for that, which others wait for
    if not job.state.is_final:
        job, more = _after_delivery(job, ended, now)
        effects.extend(more)
    offered = _offered_value(job)
    if offered is not None and not job.state.is_final:
        job, more = ship_best(job, offered, now.at)
        effects.extend(more)
    return job, effects


def _best_ended(job: Job, event: DeliveryEnded, now: Moment) -> Step:
    """The best model beyond the tiers was delivered, or could not be, which is no fault of the job."""
    if job.best is None:
        return job, ()
    job = replace(_shipped(job, event, now.at), best=None)
    if job.run_active or job.state.is_final:
        return job, ()
    return finish_when_settled(job, now)


def _shipped(job: Job, event: DeliveryEnded, now: float) -> Job:
    """A model was delivered, of a tier or beyond: what comes next has to be better."""
    value = event.value
    if event.version is None or value is None:
        return job
    best = value if job.shipped_value is None else job.spec.direction.better(job.shipped_value, value)
    return replace(job, shipped_value=best, shipped_at=now)


def _after_delivery(job: Job, ended: TierStatus, now: Moment) -> Step:
    if ended.state is TierState.FAILED:
        words = (
            f"tier {ended.number} ({job.spec.metric} {number(ended.tier.target)}) was reached, "
            f"but its model could not be delivered: {ended.reason}"
        )
        return fail_running(job, words) if job.run_active else settle(job, JobState.FAILED, words, now)
    all_delivered = all(tier.state is TierState.DELIVERED for tier in job.tiers)
    if all_delivered and not job.spec.continue_after_last_tier and job.stop_outcome is None:
        if job.run_active:
            return stop_running(job, JobState.COMPLETED, "every tier is delivered")
        return settle(job, JobState.COMPLETED, "", now)
    return (job, ()) if job.run_active else finish_when_settled(job, now)
