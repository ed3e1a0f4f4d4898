"""Looks at the accelerators once a second without ever waiting for their driver: it may hang, the agent may not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from tiercel.trainer_agent.accelerators.contract import Accelerator, AcceleratorReading, Accelerators
from tiercel.trainer_agent.accelerators.driver_thread import DriverThread
from tiercel.trainer_agent.accelerators.none import NoAccelerators

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""How often to look; a driver answers no faster anew, and asking costs it time."""

DEADLINE_SECONDS: Final = 5.0
"""How long a look may take before the driver counts as hung."""

OPEN_SECONDS: Final = 60.0
"""How long the first look may take: a driver without its persistence daemon brings each card up first."""


class AcceleratorWatch:
    """Sees the node's accelerators."""

    def __init__(self, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self._accelerators: Accelerators = NoAccelerators()
        self._deadline_seconds = deadline_seconds
        self._thread: DriverThread | None = None
        self._pending: asyncio.Future[tuple[AcceleratorReading, ...]] | None = None
        self._readings: tuple[AcceleratorReading, ...] = ()

    @property
    def listed(self) -> tuple[Accelerator, ...]:
        """The accelerators that were there at first."""
        return self._accelerators.listed

    @property
    def readings(self) -> tuple[AcceleratorReading, ...]:
        """The last reading of each accelerator, in their order."""
        return self._readings

    async def open(self, detect: Callable[[], Accelerators], seconds: float = OPEN_SECONDS) -> None:
        """Find the accelerators and look at them for the first time.

        A driver that does not answer in time is taken for none.

        Raises:
            SetupError: Those that are asked for are not there.
        """
        self._thread = DriverThread("accelerators")
        found = asyncio.wrap_future(self._thread.submit(detect))
        done, _ = await asyncio.wait((found,), timeout=seconds)
        if not done:
            found.cancel()
            self._thread = None
            _log.error(
                "no accelerator: its driver has not answered within %g s; see nvidia-smi, then start the agent again",
                seconds,
            )
            return
        self._accelerators = found.result()
        await self.look()

    async def look(self) -> None:
        """Look once; a driver that has not answered by the deadline is asked no second question before it does."""
        if self._thread is None or not self.listed:
            return
        if self._pending is None:
            self._pending = asyncio.wrap_future(self._thread.submit(self._accelerators.look))
        done, _ = await asyncio.wait((self._pending,), timeout=self._deadline_seconds)
        if not done:
            problem = f"The driver has not answered for {self._deadline_seconds:g} s or longer: see nvidia-smi."
            self._take(tuple(AcceleratorReading(accelerator.id, problem=problem) for accelerator in self.listed))
            return
        pending, self._pending = self._pending, None
        try:
            self._take(pending.result())
        except Exception as error:
            # A defect in here must take no run along.
            _log.exception("the accelerators cannot be read")
            problem = f"The agent failed to read it: {error!r}. Please report this as a defect of Tiercel."
            self._take(tuple(AcceleratorReading(accelerator.id, problem=problem) for accelerator in self.listed))

    async def run(self, looked: Callable[[Sequence[AcceleratorReading]], None]) -> None:
        """Look again and again until cancelled; returns at once where there is nothing to look at.

        Args:
            looked: Is told the readings of each look; may not block.
        """
        while self.listed:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()
            looked(self._readings)

    async def close(self) -> None:
        """Let go of the driver, unless it hangs."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._pending is not None:
            self._pending.cancel()
            return
        done = asyncio.wrap_future(thread.submit(self._accelerators.close))
        await asyncio.wait((done,), timeout=self._deadline_seconds)

    def _take(self, readings: tuple[AcceleratorReading, ...]) -> None:
        before = {reading.accelerator_id: reading.problem for reading in self._readings}
        self._readings = readings
        for reading in readings:
            if reading.problem and reading.problem != before.get(reading.accelerator_id, ""):
                _log.warning("accelerator %s: %s", reading.accelerator_id, reading.problem)
            elif before.get(reading.accelerator_id) and not reading.problem:
                _log.info("accelerator %s is well again", reading.accelerator_id)
