"""How long a job will take yet, in seconds at its present pace, as far as its reports tell.

ProCon places by epochs that are left (Fu et al., 2019); SpeCon moves nothing that is nearly done.
"""

from __future__ import annotations

import math

from tiercel.broker.scheduling.interface import JobView
from tiercel.broker.scheduling.tiers import next_tier
from tiercel.core.jobs import Direction


def epoch_seconds(job: JobView) -> float | None:
    """Seconds on the wall that an epoch took on average; None before two epochs were reported."""
    if not job.observations:
        return None
    first, last = job.observations[0], job.observations[-1]
    epochs, passed = last.epoch - first.epoch, last.at - first.at
    return passed / epochs if epochs > 0 and 0 < passed < math.inf else None


def epochs_left(job: JobView) -> int | None:
    """Epochs that it may train yet at most; None where nothing bounds them."""
    done = job.observations[-1].epoch if job.observations else 0
    return max(job.max_epochs - done, 0) if job.max_epochs else None


def remaining_seconds(job: JobView, growth: float | None) -> float | None:
    """Seconds until it is done: its last epoch, or its last tier if it then stops; None while nobody can tell.

    Args:
        job: The job.
        growth: Units of the metric per second that it gains at present, or None while that is not known.
    """
    seconds, left = epoch_seconds(job), epochs_left(job)
    estimates = [] if seconds is None or left is None else [seconds * left]
    if not job.continues and growth is not None and growth > 0 and job.observations:
        estimates.append(_gap(job) / growth)
    return min((estimate for estimate in estimates if math.isfinite(estimate)), default=None)


def _gap(job: JobView) -> float:
    """From the latest report to the last tier's target, in units of the metric; 0 once all are reached."""
    if next_tier(job) is None:
        return 0.0
    gap = job.tiers[-1].tier.target - job.observations[-1].value
    return max(gap if job.direction is Direction.MAX else -gap, 0.0)
