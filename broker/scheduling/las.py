"""Least attained service first, in a few queues: Tiresias-style (Gu et al., 2019).

Who has used the least CPU time goes first, for nothing need be known of a job to favour the short ones that way.
Attained service is discretised into few queues, since jobs that are nearly alike would else take turns at every
decision; within a queue the order is that of submission. Published for GPUs x time and two queues; the CPU seconds, the
thresholds and that fewer tiers go first are ours. Nobody starves here for having used a lot, for the floor is kept, so
there is no promotion between queues.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from tiercel.broker.scheduling.interface import JobView, Snapshot
from tiercel.broker.scheduling.queue import QueuePolicy, QueueSettings
from tiercel.broker.scheduling.rank import Position


@dataclass(frozen=True, slots=True)
class LasSettings(QueueSettings):
    """What all queues have in common (see :class:`.QueueSettings`), and the queues."""

    # CPU seconds at which a job moves on to the next queue, rising, as text: ``4/16/64``. Empty for no queues: the
    # order is that of the CPU seconds themselves.
    thresholds: str = "4/16/64"

    def __post_init__(self) -> None:
        """Refuse what no run could make sense of."""
        QueueSettings.__post_init__(self)
        bounds = self.bounds
        if any(not after > before for before, after in zip((0.0, *bounds), bounds, strict=False)):
            msg = "thresholds must be positive and rise"
            raise ValueError(msg)

    @property
    def bounds(self) -> tuple[float, ...]:
        """The thresholds in CPU seconds."""
        return tuple(float(part) for part in self.thresholds.split("/")) if self.thresholds else ()


class LasPolicy(QueuePolicy[LasSettings]):
    """Runs a few at a time, those that have had the least CPU time first."""

    name = "las"
    settings_type = LasSettings

    def __init__(self, settings: LasSettings | None = None) -> None:
        super().__init__(settings)
        self._bounds = self.settings.bounds

    def position(self, job: JobView, _snapshot: Snapshot) -> Position:
        """By queue."""
        used = f"has used {job.cpu_seconds:.3g} CPU seconds"
        if not self._bounds:
            return Position(job.cpu_seconds, used)
        queue = bisect_right(self._bounds, job.cpu_seconds)
        return Position(queue, f"{used}, queue {queue + 1} of {len(self._bounds) + 1}")
