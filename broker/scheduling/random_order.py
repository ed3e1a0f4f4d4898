"""A few at a time in an order drawn by lot: what any order at all is worth.

Like ``fifo`` but for the order, which a hash of the seed and the job's id draws. So it needs no state, does not change
while a job lives, and is the same in every run with the same ids (measured live: no worse than by submission).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tiercel.broker.scheduling.interface import JobView, Snapshot
from tiercel.broker.scheduling.queue import QueuePolicy, QueueSettings
from tiercel.broker.scheduling.rank import Position


@dataclass(frozen=True, slots=True)
class RandomOrderSettings(QueueSettings):
    """What all queues have in common (see :class:`.QueueSettings`), and the lot."""

    seed: int = 0  # another seed, another order


class RandomOrderPolicy(QueuePolicy[RandomOrderSettings]):
    """Runs a few at a time in an order drawn by lot."""

    name = "random-order"
    settings_type = RandomOrderSettings

    def __init__(self, settings: RandomOrderSettings | None = None) -> None:
        super().__init__(settings)
        self._seed = f"{self.settings.seed}:".encode()

    def position(self, job: JobView, _snapshot: Snapshot) -> Position:
        """By lot."""
        # Python's own hash of a text differs from process to process.
        return Position(hashlib.sha256(self._seed + job.id.encode()).digest(), "in an order drawn by lot")
