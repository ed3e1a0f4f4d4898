"""Utilisation of a device as its driver tells it: a cross-check that knows nothing of trainings or pacers."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from benchmarks.gpu_check.frame import Setting
from tiercel.trainer_agent.accelerators.contract import Accelerators
from tiercel.trainer_agent.accelerators.detect import AUTO, NONE, detect

LOOK_SECONDS = 0.5


@dataclass(slots=True)
class Watched:
    """What was seen of the device while it was watched."""

    values: list[float] = field(default_factory=list)  # fractions of the driver's sample periods in which it computed

    @property
    def mean(self) -> float | None:
        """Of all of them; None where the driver tells none."""
        return statistics.fmean(self.values) if self.values else None


@contextlib.asynccontextmanager
async def accelerators(setting: Setting) -> AsyncIterator[Accelerators]:
    """The devices as the agent sees them; none on ``cpu``."""
    found = await asyncio.to_thread(detect, AUTO if setting.device == "cuda" else NONE)
    try:
        yield found
    finally:
        await asyncio.to_thread(found.close)


@contextlib.asynccontextmanager
async def watching(found: Accelerators, setting: Setting) -> AsyncIterator[Watched]:
    """Watch the device that PyTorch puts first, for as long as the context lasts."""
    watched = Watched()
    if not found.listed:
        yield watched
        return
    wanted = (setting.facts.get("device") or {}).get("id")
    ids = [device.id for device in found.listed]
    index = ids.index(wanted) if wanted in ids else 0

    async def look() -> None:
        while True:
            readings = await asyncio.to_thread(found.look)
            if (value := readings[index].utilisation) is not None:
                watched.values.append(value)
            await asyncio.sleep(LOOK_SECONDS)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(look())
        try:
            yield watched
        finally:
            task.cancel()
