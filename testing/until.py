"""Waiting for what tells nobody when it happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], *, seconds: float = 90.0) -> None:
    """Wait until ``condition`` holds; it is a defect if it does not within so many seconds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is looked at has no event to wait for
            await asyncio.sleep(0.01)
