"""The constants of the utility policy; what each buys is measured by ``python -m benchmarks.principle --ablation``."""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.broker.scheduling.allocate import FLOOR
from tiercel.broker.scheduling.tiers import HANDED_OVER_BY_THEN_SECONDS


@dataclass(frozen=True, slots=True)
class UtilitySettings:
    """How the utility policy behaves."""

    later_tiers: float = 0.02  # what each further tier counts relative to the one before, in (0, 1]
    # What being over counts beside a first tier of value 1, > 0; less than a further tier, or those wait.
    finishing: float = 0.01
    floor: float = FLOOR  # what all jobs that are not in front get together, a fraction of their node in (0, 1)
    # Who would need longer than this times what equal sharing takes goes first; 0 for nobody. Less than the half as
    # long again that nobody shall wait beyond, since what is foretold may be wrong.
    guard_ratio: float = 1.25
    # For so long a job keeps its place to hand over the model of a tier, seconds; below 0 it has none.
    handing_over_seconds: float = HANDED_OVER_BY_THEN_SECONDS
    answers_per_value: float = 100.0  # good answers in time that are worth as much as a tier of value 1, > 0
    window_seconds: float = 60.0  # a better version is worth what it makes answers better in so many seconds, >= 0
    answers_well: float = 0.4  # a node answers well for endpoints that want this part of it at most, > 0

    def __post_init__(self) -> None:
        """Refuse what no run could make sense of."""
        fits = 0 < self.floor < 1 and 0 < self.later_tiers <= 1 and min(self.guard_ratio, self.window_seconds) >= 0
        if not fits or min(self.answers_per_value, self.answers_well, self.finishing) <= 0:
            raise ValueError(
                "floor and later_tiers must be between 0 and 1, guard_ratio and window_seconds at least 0, and the "
                "others more than 0"
            )
