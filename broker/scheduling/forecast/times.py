"""When a job's tiers may be reached: the work that earlier runs of the same program needed, at the pace of lately."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiercel.broker.scheduling.forecast.curve import sign_of
from tiercel.broker.scheduling.forecast.work import forecast_from_history, past_curves, remaining_after
from tiercel.core.jobs import TierState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tiercel.broker.scheduling.interface import JobView, PastRun
    from tiercel.core.jobs import Observation

_REPORTS_OF_LATELY = 10
# Less likely ones are not worth a mark in a plot.
_LEAST_CHANCE = 0.1
_OPEN = frozenset({TierState.PENDING, TierState.UNREACHABLE})


@dataclass(frozen=True, slots=True)
class TierTime:
    """When a tier may be reached."""

    number: int  # the tier's
    expected: float  # mean of the seconds to go, by the wall, if it is reached at all and the job keeps its pace
    low: float  # one chance in ten that it takes less
    high: float  # one chance in ten that it takes more
    never: float  # how likely it is that it never gets there


def tier_times(job: JobView, past: Iterable[PastRun]) -> tuple[TierTime, ...]:
    """When the tiers that a job has not reached may be reached, counted from its latest report.

    Args:
        job: The job.
        past: Earlier runs of the same program.

    Returns:
        Nothing of tiers of which earlier runs say nothing, nor while the job's pace is not known.
    """
    curves, pace = past_curves(past, job.direction), _pace(job.observations)
    if not curves or pace <= 0:
        return ()
    spent = job.observations[-1].cpu_seconds
    found: list[TierTime] = []
    for status in job.tiers:
        if status.state not in _OPEN:
            continue
        forecast = forecast_from_history(curves, sign_of(job.direction) * status.tier.target)
        if forecast is None or not forecast.totals:
            continue
        left = remaining_after(forecast, spent)
        if 1 - left.never >= _LEAST_CHANCE:
            times = (left.expected / pace, left.low / pace, left.high / pace)
            found.append(TierTime(status.number, *times, left.never))
    return tuple(found)


def _pace(observations: Sequence[Observation]) -> float:
    """CPU seconds per second by the wall between the latest reports; 0 while that is not known."""
    lately = observations[-_REPORTS_OF_LATELY:]
    seconds = lately[-1].at - lately[0].at if lately else 0.0
    return (lately[-1].cpu_seconds - lately[0].cpu_seconds) / seconds if seconds > 0 else 0.0
