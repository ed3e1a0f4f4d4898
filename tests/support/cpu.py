"""Measuring what CPU something really gets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

WINDOW_SECONDS = 3.0
WINDOWS = 5


async def cores_used(usage: Callable[[], Awaitable[float]], seconds: float = WINDOW_SECONDS) -> float:
    """Cores used on average over a window.

    Args:
        usage: Tells CPU seconds used up to the moment it returns.
        seconds: Length of the window.
    """
    before = await usage()
    began = time.monotonic()
    await asyncio.sleep(seconds)
    after = await usage()
    return (after - before) / (time.monotonic() - began)


async def assert_cores(usage: Callable[[], Awaitable[float]], expected: float, tolerance: float = 0.1) -> None:
    """Check that something uses ``expected`` cores within a fraction of them.

    Other work on the machine may disturb a window, so there are a few; the tolerance stays.
    """
    seen = []
    for _ in range(WINDOWS):
        seen.append(await cores_used(usage))
        if abs(seen[-1] - expected) <= tolerance * expected:
            return
    raise AssertionError(f"expected {expected} cores within {tolerance:.0%}, measured {seen}")


async def assert_ratio(
    usages: Mapping[str, Callable[[], Awaitable[float]]], expected: float, tolerance: float = 0.1
) -> None:
    """Check that the first of two uses ``expected`` times as much as the second, within a fraction of it."""
    seen = []
    for _ in range(WINDOWS):
        first, second = await asyncio.gather(*(cores_used(usage) for usage in usages.values()))
        seen.append(first / max(second, 1e-9))
        if abs(seen[-1] - expected) <= tolerance * expected:
            return
    raise AssertionError(f"expected a ratio of {expected} within {tolerance:.0%}, measured {seen}")
