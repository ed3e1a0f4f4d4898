"""Waiting for what tells nobody when it happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

_PAUSE_SECONDS: Final = 0.01
_LONGEST_SECONDS: Final = 0.1
_PAUSE_BY_COST: Final = 3


async def until(condition: Callable[[], object], *, seconds: float = 90.0) -> None:
    """Wait until ``condition`` holds; it is a defect if it does not within so many seconds."""
    async with asyncio.timeout(seconds):
        began = time.thread_time()
        while not condition():
            # Some look at all processes, or through folders: most of the CPU is for what they wait for.
            cost = time.thread_time() - began
            await asyncio.sleep(min(max(_PAUSE_SECONDS, _PAUSE_BY_COST * cost), _LONGEST_SECONDS))
            began = time.thread_time()
