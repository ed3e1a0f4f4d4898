"""What a workload may use of its node."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """What a workload may use, and why.

    Attributes:
        cpu_weight: Fraction of the node's CPU under contention, in (0, 1]. What it leaves unused flows to others.
        cpu_cap_cores: Hard ceiling in cores, or None. Only for policies that ask for one.
        reason: Why, in a sentence that a tenant can read.
    """

    cpu_weight: float
    cpu_cap_cores: float | None = None
    reason: str = ""

    def same_limits(self, other: Share | None, *, tolerance: float = 0.0) -> bool:
        """Whether ``other`` grants the same, up to an absolute ``tolerance`` of weight and an equal cap."""
        return (
            other is not None
            and self.cpu_cap_cores == other.cpu_cap_cores
            and abs(self.cpu_weight - other.cpu_weight) <= tolerance
        )
