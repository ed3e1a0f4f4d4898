"""What a run has used so far: CPU and memory as its runtime counts them, accelerators as trainer and driver say."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tiercel.trainer_agent.accelerators.contract import AcceleratorReading
from tiercel.trainer_agent.accelerators.use import AcceleratorMeter
from tiercel.trainer_agent.limits.contract import Usage
from tiercel.trainer_agent.runtimes.contract import RunHandle
from tiercel.v1 import nodes_pb2, trainer_pb2

_log = logging.getLogger(__name__)

_SOON_SECONDS: Final = 0.02


class RunUsage:
    """The usage of one run. What is counted never falls, also where the counters are gone with its processes.

    Args:
        run_id: The run.
        last: The newest report that an earlier life of the agent took in, if any.
        is_earlier: Whether such a life started it: only that one knew when it began to train.

    Attributes:
        begun_cpu_seconds: CPU seconds that it had used when it began to train; None before that, or where nobody knows.
    """

    def __init__(self, run_id: str, last: nodes_pb2.Progress | None, *, is_earlier: bool = False) -> None:
        self.begun_cpu_seconds: float | None = None
        self._has_begun = is_earlier
        self._run_id = run_id
        self._cpu = Usage() if last is None else Usage(last.cpu_seconds)
        self._accelerators = AcceleratorMeter(0.0 if last is None else last.accelerator_seconds)

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds, as last measured."""
        return self._cpu.cpu_seconds

    @property
    def accelerator_seconds(self) -> float:
        """Seconds that it kept an accelerator busy, of the one that it kept busy longest."""
        return self._accelerators.seconds

    async def measure(self, handle: RunHandle) -> None:
        """Ask its runtime."""
        now = await handle.usage()
        self._cpu = replace(now, cpu_seconds=max(now.cpu_seconds, self._cpu.cpu_seconds))

    async def measure_soon(self, handle: RunHandle | None) -> None:
        """The same, as far as it answers at once: news of a tier must not wait for a slow engine."""
        if handle is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SOON_SECONDS):
                    await self.measure(handle)

    async def begin(self, handle: RunHandle | None) -> bool:
        """Its trainer says that it trains; False where that is known, or was in an earlier life of the agent."""
        if self._has_begun:
            return False
        self._has_begun = True
        await self.measure_soon(handle)
        self.begun_cpu_seconds = self.cpu_seconds
        return True

    def on_report(self, use: trainer_pb2.AcceleratorUse) -> None:
        """Its trainer said what it has used of accelerators."""
        self._accelerators.on_report(use.accelerator_seconds, use.memory_bytes)

    def on_readings(self, readings: Sequence[AcceleratorReading], handle: RunHandle) -> None:
        """The driver said what processes use of accelerators."""
        try:
            pids = handle.pids()
        except OSError as error:
            _log.debug("the processes of run %s are not known: %s", self._run_id, error)
        else:
            self._accelerators.on_readings(readings, pids)

    def message(self) -> nodes_pb2.RunUsage:
        """What the broker is told from time to time."""
        return nodes_pb2.RunUsage(
            run_id=self._run_id,
            cpu_seconds=self._cpu.cpu_seconds,
            memory_bytes=self._cpu.memory_bytes,
            accelerator_seconds=self._accelerators.seconds,
            accelerator_memory_bytes=self._accelerators.memory_bytes,
        )

    def log_accelerators(self) -> None:
        """Log what each side says of accelerators, where both do."""
        reported, sampled = self._accelerators.reported_seconds, self._accelerators.sampled_seconds
        if reported is not None and sampled is not None:
            message = "run %s used %.1f s of an accelerator by its own count, %.1f s by samples"
            _log.info(message, self._run_id, reported, sampled)
