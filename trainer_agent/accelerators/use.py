"""What a run uses of accelerators, said by two sides that check each other: the trainer library and the driver."""

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
        self._reported_seconds: float | None = None
        self._reported_memory_bytes = 0
        # By accelerator.
        self._sampled_seconds: dict[str, float] = {}
        self._sampled_memory_bytes = 0

    @property
    def seconds(self) -> float:
        """Seconds that the run kept an accelerator busy, of the one that it kept busy longest."""
        if self._reported_seconds is not None:
            return max(self._reported_seconds, self._earlier_seconds)
        return self._earlier_seconds + (self.sampled_seconds or 0.0)

    @property
    def reported_seconds(self) -> float | None:
        """The same as the trainer library counted it; None where it did not."""
        return self._reported_seconds

    @property
    def sampled_seconds(self) -> float | None:
        """The same as the driver's samples have it, an estimate; None where there are none."""
        return max(self._sampled_seconds.values(), default=None)

    @property
    def memory_bytes(self) -> int:
        """Memory that the run holds now, on the accelerator on which it holds most."""
        return self._sampled_memory_bytes or self._reported_memory_bytes

    def on_report(self, seconds: float, memory_bytes: int) -> None:
        """Take in what the trainer library says.

        Args:
            seconds: Accelerator time since its process began.
            memory_bytes: Memory that it holds.
        """
        self._reported_seconds = max(seconds, self._reported_seconds or 0.0)
        self._reported_memory_bytes = memory_bytes

    def on_readings(self, readings: Sequence[AcceleratorReading], pids: Collection[int]) -> None:
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
                before = self._sampled_seconds.get(reading.accelerator_id, 0.0)
                self._sampled_seconds[reading.accelerator_id] = before + sum(times)
        self._sampled_memory_bytes = held
