"""A few at a time in an order drawn by lot: what any order at all is worth.

Like ``fifo`` but for the order, which a hash of the seed and the job's id draws. So it needs no state, does not change
while a job lives, and is the same in every run with the same ids (measured live: no worse than by submission).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tiercel.broker.scheduling.interface import JobView, Plan, Snapshot
from tiercel.broker.scheduling.line_up import LineSettings, LineState, Place, plan_in_line


@dataclass(frozen=True, slots=True)
class RandomOrderSettings(LineSettings):
    """What all lines have in common (see :class:`.LineSettings`), and the lot.

    Attributes:
        seed: Another seed, another order.
    """

    seed: int = 0


class RandomOrderPolicy:
    """Runs a few at a time in an order drawn by lot."""

    name: str = "random-order"

    def __init__(self, settings: RandomOrderSettings | None = None) -> None:
        self.settings = settings or RandomOrderSettings()
        self._seed = f"{self.settings.seed}:".encode()

    def initial_state(self) -> LineState:
        """The state before the first call."""
        return LineState()

    def plan(self, snapshot: Snapshot, state: LineState) -> tuple[Plan, LineState]:
        """Line the jobs of each node up by lot."""
        return plan_in_line(snapshot, state, self._place, self.settings)

    def _place(self, job: JobView) -> Place:
        # Python's own hash of a text differs from process to process.
        return Place(hashlib.sha256(self._seed + job.id.encode()).digest(), "in an order drawn by lot")
