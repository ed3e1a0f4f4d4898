"""How a node's CPU is divided among what runs on it, and what running side by side costs."""

from __future__ import annotations

import enum
from dataclasses import dataclass

# The weight of the inference server, and that of all runs together for each core of the node. Only their ratio matters,
# which is the one that the agent gives its groups.
SERVING_WEIGHT = 4.0
RUNS_WEIGHT_PER_CORE = 0.1


class PenaltyModel(enum.Enum):
    """How much of its CPU time a job loses where it shares cores."""

    LINEAR = "linear"
    HARMONIC = "harmonic"


@dataclass(frozen=True, slots=True)
class Colocation:
    """The co-location penalty: what a CPU second is worth while more threads want to run than there are cores.

    * ``linear``: ``1 - penalty * (1 - s)``, s = share of one core that a thread gets. Fitted to real training processes
      with 0.28; with scheduler slices of 100 ms it is about 0.06.
    * ``harmonic``: ``1 / (1 + penalty * (k - 1))``, k = threads per core; it fitted real processes worse.
    """

    penalty: float = 0.28  # the parameter, >= 0 (linear: < 1)
    model: PenaltyModel = PenaltyModel.LINEAR  # which formula

    def __post_init__(self) -> None:
        """Refuse penalties that leave nothing."""
        if self.penalty < 0 or (self.model is PenaltyModel.LINEAR and self.penalty >= 1):
            msg = f"a co-location penalty of {self.penalty} makes no sense; give 0 <= penalty < 1"
            raise ValueError(msg)

    def efficiency(self, core_share: float, threads: int, cores: float) -> float:
        """Work done per CPU second.

        Args:
            core_share: What one thread of the job gets, in cores, at most 1.
            threads: Threads on the node that want to run.
            cores: The node's cores.
        """
        if threads <= cores:
            return 1.0
        if self.model is PenaltyModel.LINEAR:
            return 1.0 - self.penalty * (1.0 - min(core_share, 1.0))
        return 1.0 / (1.0 + self.penalty * (threads / cores - 1.0))


NO_PENALTY = Colocation(0.0)
SLICED = Colocation(0.06)
"""With scheduler slices of 100 ms."""


def cores_for_runs(node_cores: float, serving_cores: float) -> float:
    """Cores that are left for runs beside an inference server that nothing limits.

    The server gets what it needs first, as live, but not all of a node: the group of the runs has a weight of its own.
    """
    runs_weight = RUNS_WEIGHT_PER_CORE * node_cores
    least = node_cores * runs_weight / (runs_weight + SERVING_WEIGHT)
    return max(node_cores - serving_cores, least)
