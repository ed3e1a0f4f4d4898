"""First come, first served, tier by tier: the baseline that any claim about prediction is held against.

As many jobs of a node run at a time as it has cores, those short of their tier 1 first, in the order of submission;
the others keep a small floor. In a live trial this alone took most of what a tier-aware scheduler gains over equal
shares. It looks at no report.
"""

from __future__ import annotations

from tiercel.broker.scheduling.interface import JobView, Snapshot
from tiercel.broker.scheduling.queue import QueuePolicy, QueueSettings
from tiercel.broker.scheduling.rank import Position

# Submission settles all ties.
_POSITION = Position(0, "in the order of submission")


class FifoPolicy(QueuePolicy[QueueSettings]):
    """Runs a few at a time in the order of submission."""

    name = "fifo"
    settings_type = QueueSettings

    def position(self, _job: JobView, _snapshot: Snapshot) -> Position:
        """The same for all."""
        return _POSITION
