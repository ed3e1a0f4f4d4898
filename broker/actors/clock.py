"""Time as an argument: the live clock, and the contract that a test's clock keeps as well."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Where actors get the time from."""

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        await asyncio.sleep(seconds)
