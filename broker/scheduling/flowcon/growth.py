"""FlowCon's growth efficiency: how much a job's metric moves for the CPU that it uses (Zheng et al., 2019)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tiercel.core.jobs import Observation


def largest_value(observations: Sequence[Observation], so_far: float) -> float:
    """The largest absolute value reported; what the series is divided by, so that it lies within [-1, 1].

    Args:
        observations: The reports that are kept.
        so_far: The largest of those that are kept no more.
    """
    sizes = [abs(seen.value) for seen in observations]
    if not math.isfinite(sum(sizes)):
        sizes = [size for size in sizes if math.isfinite(size)]
    return max(so_far, max(sizes, default=0.0))


def growth_efficiency(
    observations: Sequence[Observation], now: float, interval: float, node_cores: float, largest: float
) -> float | None:
    """``G = P / R`` over the last interval.

    ``P`` is the absolute difference between the means of the normalised metric in the last interval and in the one
    before, per second. ``R`` is the mean CPU use since the last report of the earlier interval, as a fraction of the
    node.

    Args:
        observations: Reports, oldest first.
        now: End of the last interval, seconds since the Unix epoch.
        interval: Its length in seconds (itval).
        node_cores: Cores of the node.
        largest: What the metric is divided by; see :func:`largest_value`.

    Returns:
        Parts of the largest value per second and node; None where an interval has no report or no CPU was used.
    """
    recent: list[Observation] = []
    before: list[Observation] = []
    for seen in reversed(observations):
        age = now - seen.at
        if age >= 2 * interval:
            break
        if math.isfinite(seen.value + seen.cpu_seconds):
            (recent if age < interval else before).append(seen)
    if not recent or not before or largest <= 0:
        return None
    use = _cpu_use(before[0], recent) / node_cores
    if not use > 0:
        return None
    progress = abs(_mean(recent, largest) - _mean(before, largest)) / interval
    growth = progress / use
    return growth if math.isfinite(growth) else None


def _cpu_use(start: Observation, recent: Sequence[Observation]) -> float:
    """Mean cores in use from ``start`` to the last one of ``recent`` (the latest first)."""
    used, last = 0.0, start
    for seen in reversed(recent):
        # A counter below the one before it began at zero again, with a new run.
        step = seen.cpu_seconds - last.cpu_seconds
        used += step if step >= 0 else max(seen.cpu_seconds, 0.0)
        last = seen
    took = last.at - start.at
    return used / took if took > 0 else 0.0


def _mean(reports: Sequence[Observation], largest: float) -> float:
    return sum([seen.value / largest for seen in reports]) / len(reports)
