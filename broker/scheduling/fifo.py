"""First come, first served, tier by tier: the baseline that any claim about prediction is held against.

As many jobs of a node run at a time as it has cores, those short of their tier 1 first, in the order of submission;
the others keep a small floor. In a live trial this alone took most of what a tier-aware scheduler gains over equal
shares. It looks at no report.
"""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.broker.scheduling.interface import JobView, Plan, Snapshot
from tiercel.broker.scheduling.queue import QueueSettings, QueueState, plan_in_order
from tiercel.broker.scheduling.rank import Position

# Submission settles all ties.
_POSITION = Position(0, "in the order of submission")


@dataclass(frozen=True, slots=True)
class FifoSettings(QueueSettings):
    """What all queues have in common; see :class:`.QueueSettings`."""


class FifoPolicy:
    """Runs a few at a time in the order of submission."""

    name: str = "fifo"
    settings_type = FifoSettings

    def __init__(self, settings: FifoSettings | None = None) -> None:
        self.settings = settings or FifoSettings()

    def initial_state(self) -> QueueState:
        """The state before the first call."""
        return QueueState()

    def plan(self, snapshot: Snapshot, state: QueueState) -> tuple[Plan, QueueState]:
        """Rank the jobs of each node by submission."""
        return plan_in_order(snapshot, state, _position, self.settings)


def _position(job: JobView) -> Position:
    return _POSITION
