"""Shortest remaining work to the next tier first, by what earlier runs of the same program needed.

The plainest use of what is known of earlier runs: whatever ``utility`` gains beyond this, it gains by more than knowing
them. Jobs of which nothing is known come last at their stage, in the order of submission, as under ``fifo``.
"""

from __future__ import annotations

import math

from tiercel.broker.scheduling.forecast.known import known_remaining
from tiercel.broker.scheduling.interface import JobView, Snapshot
from tiercel.broker.scheduling.queue import QueuePolicy, QueueSettings
from tiercel.broker.scheduling.rank import Position

_UNKNOWN = Position(math.inf, "no earlier run of its program tells what it still needs")


class SrptPolicy(QueuePolicy[QueueSettings]):
    """Runs a few at a time, those first that are nearest to their next tier as earlier runs tell it."""

    name = "srpt"
    settings_type = QueueSettings

    def position(self, job: JobView, snapshot: Snapshot) -> Position:
        """By what it is expected to need."""
        remaining = known_remaining(job, snapshot)
        if remaining is None:
            return _UNKNOWN
        expected = remaining.expected
        return Position(expected, f"expected to need {expected:.3g} CPU seconds more, as earlier runs did")
