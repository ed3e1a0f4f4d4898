"""Who goes first under TRADL-style scheduling, and by how much."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tiercel.broker.scheduling.interface import JobView
from tiercel.broker.scheduling.tradl.memory import JobMemory

# A gap counts as at least this much (fraction of the metric's scale), so that no weight grows without bound.
_SMALLEST_GAP = 1e-3


class TradlWeight(enum.Enum):
    """What the jobs in the lead are weighted by."""

    ETA = "eta"
    GROWTH = "growth"
    GAP = "gap"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job as this pass sees it."""

    job: JobView  # the job
    memory: JobMemory  # what is known of it; with its distance if it goes first
    leads: bool  # whether it goes first


def lead_weights(lead: Sequence[Candidate], weights: TradlWeight) -> dict[str, float]:
    """What the jobs in the lead are weighted by, by id, the largest being 1; only the proportions matter.

    A job about which nothing is known yet counts as the mean of the others; all count alike while none is known.
    """
    known = {candidate.job.id: _weight(candidate, weights) for candidate in lead}
    values = [value for value in known.values() if value is not None]
    largest = max(values, default=0.0)
    if largest <= 0:
        return dict.fromkeys(known, 1.0)
    mean = sum(value / largest for value in values) / len(values)
    return {job_id: mean if value is None else value / largest for job_id, value in known.items()}


def _weight(candidate: Candidate, weights: TradlWeight) -> float | None:
    distance = candidate.memory.distance
    if distance is None:
        return None
    gap = max(distance.gap, _SMALLEST_GAP)
    if weights is TradlWeight.GAP:
        return gap
    if distance.growth is None:
        return None
    rate = max(distance.growth, 0.0)
    value = rate / gap if weights is TradlWeight.ETA else rate
    return value if math.isfinite(value) else None


def find_lead(jobs: Sequence[JobView], memories: Sequence[JobMemory]) -> list[bool]:
    """Which jobs go first: of those with a tier within reach, the ones that have reached the fewest."""
    # As many tiers as it has reached, or more than anybody has for those that do not climb.
    steps = [
        math.inf if memory.record.unreachable or memory.record.reached >= len(job.tiers) else memory.record.reached
        for job, memory in zip(jobs, memories, strict=True)
    ]
    lowest = min(steps, default=math.inf)
    return [step == lowest < math.inf for step in steps]
