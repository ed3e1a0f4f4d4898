"""Shortest remaining work to the next tier first, by what earlier runs of the same program needed.

The plainest use of what is known of earlier runs: whatever ``utility`` gains beyond this, it gains by more than knowing
them. Jobs of which nothing is known come last at their stage, in the order of submission, as under ``fifo``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tiercel.broker.scheduling.forecast.known import known_remaining
from tiercel.broker.scheduling.interface import JobView, Plan, Snapshot
from tiercel.broker.scheduling.queue import QueueSettings, QueueState, plan_in_order
from tiercel.broker.scheduling.rank import Position

_UNKNOWN = Position(math.inf, "no earlier run of its program tells what it still needs")


@dataclass(frozen=True, slots=True)
class SrptSettings(QueueSettings):
    """What all queues have in common; see :class:`.QueueSettings`."""


class SrptPolicy:
    """Runs a few at a time, those first that are nearest to their next tier as earlier runs tell it."""

    name: str = "srpt"
    settings_type = SrptSettings

    def __init__(self, settings: SrptSettings | None = None) -> None:
        self.settings = settings or SrptSettings()

    def initial_state(self) -> QueueState:
        """The state before the first call."""
        return QueueState()

    def plan(self, snapshot: Snapshot, state: QueueState) -> tuple[Plan, QueueState]:
        """Rank the jobs of each node by what they are expected to need."""
        return plan_in_order(snapshot, state, lambda job: _position(job, snapshot), self.settings)


def _position(job: JobView, snapshot: Snapshot) -> Position:
    remaining = known_remaining(job, snapshot)
    if remaining is None:
        return _UNKNOWN
    expected = remaining.expected
    return Position(expected, f"expected to need {expected:.3g} CPU seconds more, as earlier runs did")
