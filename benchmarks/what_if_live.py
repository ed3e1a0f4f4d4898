"""What a live broker predicted, and what then came: schedules of the live benchmark, with real training."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.scheduling.arms import ARMS
from benchmarks.scheduling.live_run import TENANT, LiveSettings, run_schedule
from benchmarks.scheduling.matrix import deadline_seconds
from benchmarks.scheduling.recordings import Recordings
from benchmarks.scheduling.schedules import make_schedule
from testing.product import Product
from tiercel import Client
from tiercel.core.errors import OverloadedError
from tiercel.core.predictions import Prediction, PredictionState
from tiercel.core.what_if import Changes

ARMS_ASKED = ("fair-slices", "fifo", "utility-history")
SCHEDULE = "random"
# Somebody asks so often; the broker asks by itself as well.
_ASK_SECONDS = 10.0
_SETTLE_SECONDS = 30.0
_MOST = 1000


class _Asking:
    """Somebody who asks a broker while it works, and reads at the end what is recorded."""

    def __init__(self) -> None:
        self.predictions: tuple[Prediction, ...] = ()
        self.submitted: tuple[float, ...] = ()
        self._task: asyncio.Task[None] | None = None

    async def begin(self, product: Product) -> None:
        """Ask from now on."""
        self._task = asyncio.create_task(self._ask(product))

    async def _ask(self, product: Product) -> None:
        async with Client.from_state_dir(product.state_dir, TENANT) as client:
            while True:
                with contextlib.suppress(OverloadedError):
                    await client.what_if(Changes())
                await asyncio.sleep(_ASK_SECONDS)

    async def end(self, product: Product) -> None:
        """Ask no more, and read what is recorded once all of it is settled."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        async with Client.from_state_dir(product.state_dir, TENANT) as client, asyncio.timeout(_SETTLE_SECONDS):
            self.submitted = tuple(job.submitted_at.timestamp() for job in await client.list_jobs())
            while True:
                self.predictions = (await client.predictions(limit=_MOST)).predictions
                if all(each.state is not PredictionState.OPEN for each in self.predictions):
                    return
                await asyncio.sleep(1.0)


@dataclass(frozen=True, slots=True)
class Lived:
    """What a live broker predicted in one schedule, and what came."""

    predictions: tuple[Prediction, ...]  # those that are settled, the oldest first
    submitted: tuple[float, ...]  # when each job was submitted, seconds since the Unix epoch

    def is_alone(self, prediction: Prediction) -> bool:
        """Whether no job was submitted between a prediction and its tier: of such a job no prediction can know."""
        made, came = prediction.made_at.timestamp(), prediction.came_seconds
        return came is not None and not any(made < each < made + came for each in self.submitted)


async def predicted_live(arm: str, repetition: int, folder: Path, cores: int) -> Lived:
    """The settled predictions of one schedule under an arm that knows earlier runs.

    Raises:
        ProductError: The product did not start.
        RecordingError: A recording is missing.
    """
    recordings, schedule, asking = Recordings.read(), make_schedule(SCHEDULE, repetition), _Asking()
    seconds = deadline_seconds(schedule, recordings, cores)
    settings = LiveSettings(folder, "process", seconds, recordings, first=asking.begin, last=asking.end)
    await run_schedule(replace(ARMS[arm], knows_past=True), schedule, settings)
    return Lived(asking.predictions[::-1], asking.submitted)
