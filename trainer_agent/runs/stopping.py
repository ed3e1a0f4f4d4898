"""How a run is stopped: its trainer is asked, then its processes; sooner where it has to be gone by some moment."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from dataclasses import dataclass
from typing import Final

from tiercel.trainer_agent.errors import RunFailedError
from tiercel.trainer_agent.runtimes.contract import RunHandle

_log = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class StopPatience:
    """How long a run gets at each step of being stopped, in seconds."""

    trainer: float = 10.0  # from the request over the socket, if a trainer is attached, to SIGTERM
    moving: float = 60.0  # the same for a run that is moved: it shall get to the end of what it is at and save it
    signal: float = 5.0  # from SIGTERM to SIGKILL


class Stop:
    """Whether one run is to stop, why and by when.

    Attributes:
        reason: Why, in plain words; empty while it goes on.
        misdeed: What it did that ends it, in plain words; empty of a run that is stopped for another reason.
    """

    def __init__(self, patience: StopPatience) -> None:
        self.reason = ""
        self.misdeed = ""
        self._patience = patience
        self._asked = asyncio.Event()
        self._hurried = asyncio.Event()
        self._end_at = math.inf

    @property
    def is_asked(self) -> bool:
        """Whether it is to stop."""
        return self._asked.is_set()

    def ask(self, reason: str) -> None:
        """Have it stopped; a second reason changes nothing."""
        if not self._asked.is_set():
            self.reason = reason
            self._asked.set()

    def hurry(self, seconds: float) -> None:
        """Have it gone by then; said again it changes nothing."""
        if not self._hurried.is_set():
            self._end_at = time.monotonic() + seconds
            self._hurried.set()

    async def wait_asked(self) -> None:
        """Wait until it is to stop."""
        await self._asked.wait()

    async def wait_for_trainer(self, *, moved: bool) -> None:
        """Give its trainer time to save and leave: half of what is left, if it has to be gone by some moment."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience.moving if moved else self._patience.trainer):
                await self._hurried.wait()
                await asyncio.sleep(self._seconds_left() / 2)

    async def end(self, run_id: str, handle: RunHandle) -> None:
        """End its processes, again and again until that succeeds."""
        while True:
            try:
                return await handle.stop(min(self._patience.signal, self._seconds_left() / 2))
            except RunFailedError as error:
                _log.warning("run %s is not stopped yet: %s", run_id, error.message)
                await asyncio.sleep(_AGAIN_SECONDS)

    def _seconds_left(self) -> float:
        return max(0.0, self._end_at - time.monotonic())
