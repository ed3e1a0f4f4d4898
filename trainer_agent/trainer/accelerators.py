"""What an attached run does about accelerators at its boundaries: pace itself, and count what it uses."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tiercel.trainer_agent.trainer.accelerator_clock import AcceleratorClock, ClockReading, CudaClock, StepClock
from tiercel.trainer_agent.trainer.accelerator_memory import AcceleratorMemory, CudaMemory, MemoryLimits
from tiercel.trainer_agent.trainer.accelerator_pacing import AcceleratorPacer
from tiercel.trainer_agent.trainer.rank import Rank
from tiercel.v1 import common_pb2, trainer_pb2

USE_SECONDS: Final = 1.0
"""Use is sent no more often than this."""


class Accelerators:
    """The accelerators that a run holds, if any.

    Args:
        shares: What was granted, in the order in which PyTorch numbers the accelerators.
        memory: Of these accelerators; its limits hold from now on.
        clocks: Of the accelerators, or what stands in for them.
        own: Those of them whose memory this process may hold; None for all.
        wall: Seconds that pass; any origin.
    """

    def __init__(
        self,
        shares: Sequence[common_pb2.AcceleratorShare],
        *,
        memory: AcceleratorMemory,
        clocks: Sequence[AcceleratorClock],
        own: range | None = None,
        wall: Callable[[], float] = time.monotonic,
    ) -> None:
        self._holds_any = bool(shares)
        # To limit an accelerator is to open it, which costs memory there: each rank opens its own alone.
        granted = [share.memory_bytes if own is None or index in own else 0 for index, share in enumerate(shares)]
        self._memory = MemoryLimits(granted, memory)
        self._pacer = AcceleratorPacer(clocks, wall=wall)
        self._wall = wall
        self._told_at = wall() - USE_SECONDS

    @classmethod
    def of(
        cls, shares: Sequence[common_pb2.AcceleratorShare], rank: Rank, others: Sequence[AcceleratorClock] = ()
    ) -> Accelerators:
        """Those of this process. Where PyTorch sees none, the time of the steps stands in for accelerator time.

        Args:
            shares: See above; those of all ranks.
            rank: This one.
            others: Clocks of the accelerators of the other ranks, which are paced with this one.
        """
        memory = CudaMemory()
        own = rank.devices(len(shares))
        clocks: list[AcceleratorClock] = [CudaClock(index) for index in own if index < memory.count] if shares else []
        return cls(shares, memory=memory, clocks=[*(clocks or [StepClock()]), *others], own=own)

    def limit(self, fraction: float) -> None:
        """Use no more than that fraction of the time of each accelerator; 0 means no limit."""
        self._pacer.limit(fraction)

    def delay_seconds(self) -> float:
        """How long the script should issue nothing now. To be asked again then."""
        return self._pacer.delay_seconds()

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """What the script issues in here counts."""
        before = self._pacer.is_open
        self._switch(counts=True)
        try:
            yield
        finally:
            self._switch(counts=before)

    @contextlib.contextmanager
    def not_counting(self) -> Iterator[None]:
        """What passes in here is not the script's work on an accelerator, whatever is around it."""
        before = self._pacer.is_open
        self._switch(counts=False)
        try:
            yield
        finally:
            self._switch(counts=before)

    def use(self, *, last: bool = False, held_elsewhere: int = 0) -> trainer_pb2.AcceleratorUse | None:
        """What was used, if it is time to say so. None for a run without any.

        Args:
            last: Whether to say it in any case.
            held_elsewhere: Bytes that another rank holds, of the accelerator on which one holds most.
        """
        now = self._wall()
        if not self._holds_any or not (last or now - self._told_at >= USE_SECONDS):
            return None
        self._told_at = now
        return trainer_pb2.AcceleratorUse(
            accelerator_seconds=self._pacer.reading().busy_seconds, memory_bytes=max(self.held_bytes(), held_elsewhere)
        )

    def reading(self) -> ClockReading:
        """What is known of the accelerator that was kept busy longest."""
        return self._pacer.reading()

    def held_bytes(self) -> int:
        """What the process holds of the accelerator on which it holds most."""
        return self._memory.held_bytes()

    def explain(self, error: BaseException | None) -> str:
        """A sentence about a limit that the script ran into; else empty."""
        return self._memory.explain(error)

    def _switch(self, *, counts: bool) -> None:
        if counts:
            self._pacer.begin()
        else:
            self._pacer.end()
