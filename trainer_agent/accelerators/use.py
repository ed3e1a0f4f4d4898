"""What a run uses of accelerators, told by two sides that check each other: the trainer library and the driver."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tiercel.trainer_agent.accelerators.contract import AcceleratorReading


class AcceleratorMeter:
    """One run's use.

    The library counts accelerator time at step boundaries and is believed about it; the driver only samples, but knows
    of scripts without the library too. Of memory the driver knows more: what a process holds besides tensors, and what
    the run's other processes hold.

    Args:
        earlier_seconds: What an earlier life of the agent knew of.
    """

    def __init__(self, earlier_seconds: float = 0.0) -> None:
        self._earlier_seconds = earlier_seconds
        self._told_seconds: float | None = None
        self._told_memory_bytes = 0
        # By accelerator.
        self._seen_seconds: dict[str, float] = {}
        self._seen_memory_bytes = 0

    @property
    def seconds(self) -> float:
        """Seconds that the run kept an accelerator busy, of the one that it kept busy longest."""
        if self._told_seconds is not None:
            return max(self._told_seconds, self._earlier_seconds)
        return self._earlier_seconds + (self.seen_seconds or 0.0)

    @property
    def told_seconds(self) -> float | None:
        """The same as the trainer library counted it; None where it did not."""
        return self._told_seconds

    @property
    def seen_seconds(self) -> float | None:
        """The same as the driver's samples have it, an estimate; None where there are none."""
        return max(self._seen_seconds.values(), default=None)

    @property
    def memory_bytes(self) -> int:
        """Memory that the run holds now, on the accelerator on which it holds most."""
        return self._seen_memory_bytes or self._told_memory_bytes

    def tell(self, seconds: float, memory_bytes: int) -> None:
        """Take in what the trainer library says.

        Args:
            seconds: Accelerator time since its process began.
            memory_bytes: Memory that it holds.
        """
        self._told_seconds = max(seconds, self._told_seconds or 0.0)
        self._told_memory_bytes = memory_bytes

    def see(self, readings: Sequence[AcceleratorReading], pids: Collection[int]) -> None:
        """Take in what the driver says; each look counts once.

        Args:
            readings: Of all accelerators.
            pids: The run's processes, as the machine numbers them.
        """
        held = 0
        for reading in readings:
            uses = [reading.processes[pid] for pid in pids if pid in reading.processes]
            held = max(held, sum(use.memory_bytes for use in uses))
            times = [use.busy_seconds for use in uses if use.busy_seconds is not None]
            if times:
                self._seen_seconds[reading.accelerator_id] = self._seen_seconds.get(reading.accelerator_id, 0.0) + sum(
                    times
                )
        self._seen_memory_bytes = held
