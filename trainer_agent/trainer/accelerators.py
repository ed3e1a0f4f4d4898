"""What an attached run does about accelerators at its boundaries: pace itself, and count what it uses."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tiercel.trainer_agent.trainer.accelerator_clock import AcceleratorClock, CudaClock, StepClock
from tiercel.trainer_agent.trainer.accelerator_memory import AcceleratorMemory, CudaMemory, MemoryLimits
from tiercel.trainer_agent.trainer.accelerator_pacing import AcceleratorPacer
from tiercel.v1 import common_pb2, trainer_pb2

USE_SECONDS: Final = 1.0
"""Use is sent no more often than this."""


class Accelerators:
    """The accelerators that a run holds, if any.

    Args:
        shares: What was granted, in the order in which PyTorch numbers the accelerators.
        memory: Of these accelerators; its limits hold from now on.
        clocks: Of the accelerators, or what stands in for them.
        wall: Seconds that pass; any origin.
    """

    def __init__(
        self,
        shares: Sequence[common_pb2.AcceleratorShare],
        *,
        memory: AcceleratorMemory,
        clocks: Sequence[AcceleratorClock],
        wall: Callable[[], float] = time.monotonic,
    ) -> None:
        self._holds_any = bool(shares)
        self._memory = MemoryLimits([share.memory_bytes for share in shares], memory)
        self._pacer = AcceleratorPacer(clocks, wall=wall)
        self._wall = wall
        self._told_at = wall() - USE_SECONDS

    @classmethod
    def of(cls, shares: Sequence[common_pb2.AcceleratorShare]) -> Accelerators:
        """Those of this process. Where PyTorch sees none, the time of the steps stands in for accelerator time."""
        memory = CudaMemory()
        cuda = [CudaClock(index) for index in range(memory.count)] if shares else []
        return cls(shares, memory=memory, clocks=cuda or [StepClock()])

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

    def use(self, *, last: bool = False) -> trainer_pb2.AcceleratorUse | None:
        """What was used, if it is time to say so; ``last``: whether it is time or not. None for a run without any."""
        now = self._wall()
        if not self._holds_any or not (last or now - self._told_at >= USE_SECONDS):
            return None
        self._told_at = now
        return trainer_pb2.AcceleratorUse(
            accelerator_seconds=self._pacer.busy_seconds(), memory_bytes=self._memory.held_bytes()
        )

    def explain(self, error: BaseException | None) -> str:
        """A sentence about a limit that the script ran into; else empty."""
        return self._memory.explain(error)

    def _switch(self, *, counts: bool) -> None:
        if counts:
            self._pacer.begin()
        else:
            self._pacer.end()
