"""First come, first served, tier by tier: the baseline that any claim about prediction is held against.

As many jobs of a node run at a time as it has cores, those short of their tier 1 first, in the order of submission;
the others keep a small floor. In a live trial this alone took most of what a tier-aware scheduler gains over equal
shares. It looks at no report.
"""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.broker.scheduling.interface import JobView, Plan, Snapshot
from tiercel.broker.scheduling.line_up import LineSettings, LineState, Place, plan_in_line

# Submission settles all ties.
_PLACE = Place(0, "in the order of submission")


@dataclass(frozen=True, slots=True)
class FifoSettings(LineSettings):
    """What all lines have in common; see :class:`.LineSettings`."""


class FifoPolicy:
    """Runs a few at a time in the order of submission."""

    name: str = "fifo"

    def __init__(self, settings: FifoSettings | None = None) -> None:
        self.settings = settings or FifoSettings()

    def initial_state(self) -> LineState:
        """The state before the first call."""
        return LineState()

    def plan(self, snapshot: Snapshot, state: LineState) -> tuple[Plan, LineState]:
        """Line the jobs of each node up by submission."""
        return plan_in_line(snapshot, state, _place, self.settings)


def _place(job: JobView) -> Place:
    return _PLACE
