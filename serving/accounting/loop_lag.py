"""How late the event loop comes: the part of a delay that requests spend unread, and that no request can tell.

A timer that is due every tenth of a second stands for a request that arrives then: how late it is called is how long
the request would have waited. Timers of uvloop are good to a millisecond, so a lag of that much means nothing.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from tiercel.serving.accounting.delays import Delays

SAMPLE_SECONDS: Final = 0.1
"""Seconds between two looks."""


class LoopLag:
    """Quantiles of the lag.

    Args:
        now: When it begins, seconds of any steady clock.
    """

    def __init__(self, now: float) -> None:
        self._delays = Delays(now)

    def called(self, due: float, now: float) -> None:
        """What was due at ``due`` was called at ``now``."""
        self._delays.answered(max(now - due, 0.0), now)

    def as_json(self, now: float) -> list[dict[str, Any]]:
        """The last few seconds, in seconds."""
        return [
            {"seconds": window.seconds, "p50": window.p50, "p95": window.p95, "p99": window.p99}
            for window in self._delays.windows(now)
        ]

    async def watch(self) -> None:
        """Measure the running event loop until cancelled."""
        while True:
            due = time.perf_counter() + SAMPLE_SECONDS
            await asyncio.sleep(SAMPLE_SECONDS)
            self.called(due, time.perf_counter())
