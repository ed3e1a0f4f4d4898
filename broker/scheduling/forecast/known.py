"""What earlier runs of a job's program tell of the work to its next tier; the same for every policy that asks."""

from __future__ import annotations

from tiercel.broker.scheduling.forecast.work import Remaining, forecast_from_history, past_curves, remaining_after
from tiercel.broker.scheduling.interface import JobView, Snapshot
from tiercel.broker.scheduling.tiers import next_tier
from tiercel.core.jobs import Direction


def known_remaining(job: JobView, snapshot: Snapshot) -> Remaining | None:
    """CPU seconds to the next tier; None where no earlier run tells, or all tiers are reached."""
    status = next_tier(job)
    past = past_curves(snapshot.earlier_runs(job), job.direction)
    if status is None or not past:
        return None
    target = status.tier.target if job.direction is Direction.MAX else -status.tier.target
    forecast = forecast_from_history(past, target)
    return remaining_after(forecast, job.cpu_seconds) if forecast is not None and forecast.totals else None
