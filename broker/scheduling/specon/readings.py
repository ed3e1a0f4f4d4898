"""SpeCon's worker monitor: how fast a job learns, and whether it still progresses (Mao et al., 2021).

Published are the growth ``|E(now) - E(before)| / (now - before)``, the three categories and the parameters 0.1 and
10 s. How 0.1 is applied to a growth is not; measuring a job against its own best is ours, as it makes one threshold
meaningful for losses and accuracies alike. Growth is per second on the wall, as in SpeCon: a job with less CPU grows
more slowly.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tiercel.broker.scheduling.interface import JobView
from tiercel.core.jobs import Observation


class SpeconGrowth(enum.Enum):
    """What a job's growth is compared with the threshold as.

    ``RELATIVE``: divided by the job's largest growth so far. ``FLOWCON``: of the metric divided by its largest
    absolute value so far, per second.
    """

    RELATIVE = "relative"
    FLOWCON = "flowcon"


class SpeconUnit(enum.Enum):
    """What the monitor's interval is counted in."""

    SECONDS = "seconds"
    REPORTS = "reports"


class Category(enum.Enum):
    """How a job learns: two slow readings in a row make it converged, one that is not slow makes it progress again."""

    PROGRESSING = "progressing"
    WATCHING = "watching"
    CONVERGED = "converged"

    def after(self, *, slow: bool) -> Category:
        """The category after another reading."""
        if not slow:
            return Category.PROGRESSING
        return Category.WATCHING if self is Category.PROGRESSING else Category.CONVERGED


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """How jobs are watched."""

    alpha: float  # a growth below this is slow
    interval: float  # seconds or reports between two readings, at least
    unit: SpeconUnit  # which of the two
    growth: SpeconGrowth  # what is compared with ``alpha``


@dataclass(frozen=True, slots=True)
class Reading:
    """What the monitor remembers of a job."""

    category: Category = Category.PROGRESSING  # how it learns
    since: Observation | None = None  # the report that the next reading is measured from, or None before the first
    reports: int = 0  # reports taken in after that one
    last_at: float = -math.inf  # when the latest report taken in was made, seconds since the Unix epoch
    largest_value: float = 0.0  # largest absolute value of the metric
    growth: float | None = None  # units of the metric per second at the last reading, or None before the first
    largest_growth: float = 0.0  # the largest of these


def read(job: JobView, earlier: Reading, settings: MonitorSettings) -> Reading:
    """Take in what a job has reported since ``earlier``, which is returned itself if that is nothing."""
    reading = earlier
    for seen in _fresh(job, earlier.last_at):
        reading = _ingest(seen, reading, settings, job.migrated_at)
    return reading


def _fresh(job: JobView, last_at: float) -> Iterator[Observation]:
    """Reports made after ``last_at``, oldest first; walks back from the newest, so that old ones cost nothing."""
    first = len(job.observations)
    while first and job.observations[first - 1].at > last_at:
        first -= 1
    for seen in job.observations[first:]:
        if math.isfinite(seen.at) and math.isfinite(seen.value):
            yield seen


def _ingest(seen: Observation, reading: Reading, settings: MonitorSettings, migrated_at: float | None) -> Reading:
    if seen.at <= reading.last_at:  # a clock that was put back
        return reading
    largest_value = max(reading.largest_value, abs(seen.value))
    reading = replace(reading, last_at=seen.at, largest_value=largest_value, reports=reading.reports + 1)
    since = reading.since
    if since is None or (migrated_at is not None and since.at <= migrated_at < seen.at):
        # The time that a migration takes must not look like learning slowly.
        return replace(reading, since=seen, reports=0)
    passed = seen.at - since.at
    if (passed if settings.unit is SpeconUnit.SECONDS else reading.reports) < settings.interval:
        return reading
    growth = abs(seen.value - since.value) / passed
    largest = max(reading.largest_growth, growth)
    scale = largest if settings.growth is SpeconGrowth.RELATIVE else largest_value
    # Without any growth so far nothing can be divided by; that is as slow as can be.
    slow = not growth > 0 or growth < settings.alpha * scale
    return replace(
        reading,
        category=reading.category.after(slow=slow),
        since=seen,
        reports=0,
        growth=growth,
        largest_growth=largest,
    )
