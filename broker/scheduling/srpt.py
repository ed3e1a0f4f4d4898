"""Shortest remaining work to the next tier first, by what earlier runs of the same program needed.

The plainest use of what is known of earlier runs: whatever ``utility`` gains beyond this, it gains by more than knowing
them. Jobs of which nothing is known come last at their stage, in the order of submission, as under ``fifo``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tiercel.broker.scheduling.forecast.known import Known, KnownWork
from tiercel.broker.scheduling.interface import JobView, Plan, Snapshot
from tiercel.broker.scheduling.queue import QueuePolicy, QueueSettings, QueueState, plan_in_order
from tiercel.broker.scheduling.rank import Position

_UNKNOWN = Position(math.inf, "no earlier run of its program tells what it still needs")


@dataclass(frozen=True, slots=True)
class SrptState(QueueState):
    """What any order remembers, and by job what is known of it."""

    known: Mapping[str, Known] = field(default_factory=dict)


class SrptPolicy(QueuePolicy[QueueSettings]):
    """Runs a few at a time, those first that are nearest to their next tier as earlier runs tell it."""

    name = "srpt"
    settings_type = QueueSettings

    def initial_state(self) -> SrptState:
        """Nothing is known of any job."""
        return SrptState()

    def plan(self, snapshot: Snapshot, state: QueueState) -> tuple[Plan, SrptState]:
        """As any order; what earlier runs tell is worked out anew for jobs with news only."""
        known = KnownWork(snapshot, state.known if isinstance(state, SrptState) else None)
        plan, after = plan_in_order(snapshot, state, lambda job: _position(job, known), self.settings)
        return plan, SrptState(after.nodes, known.kept)

    def position(self, job: JobView, snapshot: Snapshot) -> Position:
        """By what it is expected to need."""
        return _position(job, KnownWork(snapshot))


def _position(job: JobView, known: KnownWork) -> Position:
    remaining = known.remaining(job)
    if remaining is None:
        return _UNKNOWN
    expected = remaining.expected
    return Position(expected, f"expected to need {expected:.3g} CPU seconds more, as earlier runs did")
