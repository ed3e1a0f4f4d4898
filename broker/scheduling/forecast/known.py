"""What earlier runs of a job's program tell of the work to its next tier; the same for every policy that asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tiercel.broker.scheduling.forecast.work import (
    Forecast,
    PastCurve,
    Remaining,
    forecast_from_history,
    past_curves,
    remaining_after,
)
from tiercel.broker.scheduling.interface import JobView, PastRun, Snapshot
from tiercel.broker.scheduling.tiers import next_tier
from tiercel.core.jobs import Direction


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a job, with what that rests on."""

    runs: tuple[PastRun, ...]  # earlier runs
    target: float  # of its next tier
    spent: float  # CPU seconds that it has used
    forecast: Forecast | None  # CPU seconds from its start to the target, or None where no earlier run tells
    remaining: Remaining | None  # what is left of them


class KnownWork:
    """What earlier runs tell in one pass: curves are read once for a program, and nothing twice for a job."""

    def __init__(self, snapshot: Snapshot, before: Mapping[str, Known] | None = None) -> None:
        """Begin a pass; ``before`` is what :attr:`kept` was after the last one."""
        self.kept: dict[str, Known] = {}
        """By job, what is known of those that were asked for."""
        self._snapshot = snapshot
        self._before = before or {}
        self._curves: dict[tuple[str, tuple[str, ...], Direction], tuple[PastCurve, ...]] = {}

    def remaining(self, job: JobView) -> Remaining | None:
        """CPU seconds to the next tier; None where no earlier run tells, or all tiers are reached."""
        status = next_tier(job)
        if status is None:
            return None
        runs, target = self._snapshot.earlier_runs(job), status.tier.target
        known = self._before.get(job.id)
        if known is None or known.target != target or known.runs != runs:
            forecast = self._forecast(job, runs, target)
            known = Known(runs, target, job.cpu_seconds, forecast, _left(forecast, job.cpu_seconds))
        elif known.spent != job.cpu_seconds:
            known = Known(runs, target, job.cpu_seconds, known.forecast, _left(known.forecast, job.cpu_seconds))
        self.kept[job.id] = known
        return known.remaining

    def _forecast(self, job: JobView, runs: tuple[PastRun, ...], target: float) -> Forecast | None:
        key = (job.workload, job.similar, job.direction)
        if key not in self._curves:
            self._curves[key] = past_curves(runs, job.direction)
        return forecast_from_history(self._curves[key], target if job.direction is Direction.MAX else -target)


def _left(forecast: Forecast | None, spent: float) -> Remaining | None:
    return remaining_after(forecast, spent) if forecast is not None and forecast.totals else None
