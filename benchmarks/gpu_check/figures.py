"""From what a training told, and what a load got, to figures. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.gpu_check.done import Done

TOLERANCE = 0.05
"""A new share is followed once what is got differs from it by no more."""

FOLLOW_WINDOW_SECONDS = 1.0
OBJECTIVE_WINDOW_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Got:
    """What a training got in a stretch of time."""

    share: float  # device time by time that passed
    steps_per_second: float  # of the optimizer


def got_between(told: Sequence[Done], begin: float, end: float) -> Got | None:
    """What was got from the first step that was done after ``begin`` to the last one before ``end``.

    Steps are counted from end to end, so that each comes with the rest before it. None with fewer than three.
    """
    inside = [done for done in told if begin <= done.at <= end]
    if not inside or inside[-1].steps - inside[0].steps < 2 or inside[-1].at <= inside[0].at:
        return None
    first, last = inside[0], inside[-1]
    seconds = last.at - first.at
    return Got((last.busy_seconds - first.busy_seconds) / seconds, (last.steps - first.steps) / seconds)


def points(got: float, wanted: float) -> float:
    """By how many points of 100 a share was missed."""
    return abs(got - wanted) * 100


def followed_after(
    told: Sequence[Done], changed_at: float, share: float, window_seconds: float = FOLLOW_WINDOW_SECONDS
) -> float | None:
    """Seconds from a change of share to the end of the first window after it in which the share was met; or None."""
    for first in told:
        if first.at < changed_at:
            continue
        got = got_between(told, first.at, first.at + window_seconds)
        if got is not None and abs(got.share - share) <= TOLERANCE and told[-1].at >= first.at + window_seconds:
            return first.at + window_seconds - changed_at
    return None


def percentile(values: Sequence[float], part: float) -> float:
    """The value that ``part`` of all do not exceed (nearest rank). Of at least one value; may be infinite."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: when it was due, in seconds of any origin, and its delay since then; infinite without an answer."""

    due: float
    delay: float


@dataclass(frozen=True, slots=True)
class Served:
    """What a load got. Delays in milliseconds; infinite where that many requests had no answer."""

    p50_ms: float  # median
    p99_ms: float  # what a hundredth exceeded
    windows: int  # windows of a second
    in_objective: float  # fraction of these whose p99 is within the objective
    failed: int  # requests without a good answer


def served(asked: Sequence[Asked], objective_seconds: float) -> Served:
    """Figures of a load of at least one request; a window belongs to the requests that were due in it."""
    windows: dict[int, list[float]] = {}
    for each in asked:
        windows.setdefault(int(each.due / OBJECTIVE_WINDOW_SECONDS), []).append(each.delay)
    met = sum(percentile(delays, 0.99) <= objective_seconds for delays in windows.values())
    delays = [each.delay for each in asked]
    return Served(
        p50_ms=percentile(delays, 0.5) * 1e3,
        p99_ms=percentile(delays, 0.99) * 1e3,
        windows=len(windows),
        in_objective=met / len(windows),
        failed=sum(math.isinf(delay) for delay in delays),
    )
