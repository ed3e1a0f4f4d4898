"""Measuring what CPU something really gets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import psutil

WINDOW_SECONDS = 1.0
WINDOWS = 5


def cpu_seconds(process: psutil.Process) -> float:
    """CPU time, in user and system mode, that a process has used; raises psutil's errors when it is gone."""
    times = process.cpu_times()
    return float(times.user + times.system)


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


def judge(windows: Sequence[float], expected: float, margin: float) -> bool | None:
    """Whether the median of :data:`WINDOWS` windows is what is expected.

    Returns:
        None while windows to come may still decide it.
    """
    most = WINDOWS // 2 + 1
    low = sum(seen < expected - margin for seen in windows)
    high = sum(seen > expected + margin for seen in windows)
    if max(low, high) >= most:
        return False
    if len(windows) - low - high >= most or len(windows) >= WINDOWS:
        return True
    return None


async def _assert_median(measure: Callable[[], Awaitable[float]], expected: float, tolerance: float, what: str) -> None:
    """Other work on the machine may disturb a window, but not most of them."""
    seen: list[float] = []
    while (verdict := judge(seen, expected, tolerance * expected)) is None:
        seen.append(await measure())
    if not verdict:
        raise AssertionError(f"expected {what} {expected} within {tolerance:.0%}, measured {seen}")


async def assert_cores(usage: Callable[[], Awaitable[float]], expected: float, tolerance: float = 0.1) -> None:
    """Check that something uses ``expected`` cores within a fraction of them, in the median of a few windows."""
    await _assert_median(lambda: cores_used(usage), expected, tolerance, "cores:")


async def assert_ratio(
    usages: Mapping[str, Callable[[], Awaitable[float]]], expected: float, tolerance: float = 0.1
) -> None:
    """Check that the first of two uses ``expected`` times as much as the second, in the median of a few windows."""

    async def measure() -> float:
        first, second = await asyncio.gather(*(cores_used(usage) for usage in usages.values()))
        return first / max(second, 1e-9)

    await _assert_median(measure, expected, tolerance, "a ratio of")
