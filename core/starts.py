"""What it took runs to get to work, as it was measured: the price of stopping a job and going on with it."""

from __future__ import annotations

from dataclasses import dataclass

STARTS_KEPT = 5
"""Of a job, and so many of a kind count for its program: the median of five bears two that went wrong."""

LONGEST_SECONDS = 300.0
"""Nothing here counts for more: who takes long before it trains shall not be too dear to move for ever."""


@dataclass(frozen=True, slots=True)
class Start:
    """What it took a run to get to work."""

    node_id: str  # where
    # From the order to start it until it trained, by the broker's clock: what its node prepared, its start, and its
    # imports, these as long as they take at full speed.
    seconds: float
    cpu_seconds: float  # CPU seconds that it used until then
    warm: bool = False  # whether a process, or a container, that had imported what it imports waited for it
    # From the order to stop the run before it, so that the job moves, to the end of that run with its checkpoint in the
    # broker's hands; None where it was not stopped for that.
    stop_seconds: float | None = None
