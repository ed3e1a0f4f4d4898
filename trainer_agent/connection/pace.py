"""How fast copies of checkpoints and versions go over the node's cable while nobody waits for them, each way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from tiercel.trainer_agent.reports.token_bucket import TokenBucket

DEFAULT_BYTES_PER_SECOND: Final = 16 * 1024**2
# With less the broker hears nothing for longer than it waits for the next piece.
LEAST_BYTES_PER_SECOND: Final = 64 * 1024
AT_ONCE_BYTES: Final = 1024**2


class Pace:
    """Lets so many bytes a second pass, of all together that go one way.

    Args:
        bytes_per_second: How many; :data:`AT_ONCE_BYTES` at once after a rest.
        now: Seconds of a clock that never goes back.
        sleep: Waits for so many of its seconds.
    """

    def __init__(
        self,
        bytes_per_second: float = DEFAULT_BYTES_PER_SECOND,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._now = now
        self._sleep = sleep
        self._room = TokenBucket(bytes_per_second, AT_ONCE_BYTES, now())

    def seconds_for(self, size_bytes: int) -> float:
        """How long so much takes at least."""
        return size_bytes / self._bytes_per_second

    async def wait_for(self, size_bytes: int) -> None:
        """Wait until so much more may pass."""
        self._room.take(size_bytes, self._now())
        await self._sleep(self._room.seconds_until_room(self._now()))
