"""Who is first in line under TRADL-style scheduling, and by how much."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tiercel.broker.scheduling.estimation import Curve
from tiercel.broker.scheduling.interface import JobView
from tiercel.broker.scheduling.ladder import next_tier, reached_tiers
from tiercel.broker.scheduling.reachability import ReachRecord

# A gap counts as at least this much (fraction of the metric's scale), so that no weight grows without bound.
_SMALLEST_GAP = 1e-3


class TradlWeight(enum.Enum):
    """What the jobs in the lead are weighted by."""

    ETA = "eta"
    GROWTH = "growth"
    GAP = "gap"


@dataclass(frozen=True, slots=True)
class Standing:
    """A job as this pass sees it.

    Attributes:
        job: The job.
        reached: How many tiers it has reached.
        unreachable: Why its next tier is out of reach, or empty.
        leads: Whether it is first in line.
        curve: Its reports towards its next tier; None when it has reached all.
        growth: Improvement per CPU second in units of the curve's quality; None while unknown.
    """

    job: JobView
    reached: int
    unreachable: str
    leads: bool
    curve: Curve | None
    growth: float | None


def lead_weights(lead: Sequence[Standing], weights: TradlWeight) -> dict[str, float]:
    """What the jobs in the lead are weighted by, by id, the largest being 1; only the proportions matter.

    A job about which nothing is known yet counts as the mean of the others; all count alike while none is known.
    """
    known = {standing.job.id: _weight(standing, weights) for standing in lead}
    values = [value for value in known.values() if value is not None]
    largest = max(values, default=0.0)
    if largest <= 0:
        return dict.fromkeys(known, 1.0)
    mean = sum(value / largest for value in values) / len(values)
    return {job_id: mean if value is None else value / largest for job_id, value in known.items()}


def _weight(standing: Standing, weights: TradlWeight) -> float | None:
    curve = standing.curve
    if curve is None or not curve.quality:
        return None
    gap = max(curve.gap, _SMALLEST_GAP)
    if weights is TradlWeight.GAP:
        return gap
    if standing.growth is None:
        return None
    rate = max(standing.growth, 0.0)
    value = rate / gap if weights is TradlWeight.ETA else rate
    return value if math.isfinite(value) else None


def find_lead(jobs: Sequence[JobView], records: Mapping[str, ReachRecord]) -> frozenset[str]:
    """The jobs first in line: of those with a tier within reach, the ones that have reached the fewest."""
    climbing = [job for job in jobs if next_tier(job) is not None and not records[job.id].unreachable]
    lowest = min(map(reached_tiers, climbing), default=0)
    return frozenset(job.id for job in climbing if reached_tiers(job) == lowest)
