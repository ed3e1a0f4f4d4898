"""Processes that need not be our children: waiting for their end and stopping them, by pidfd."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from tiercel.broker.cli.up.locks import open_holder


async def wait_exit(pidfd: int) -> None:
    """Wait until the process of a pidfd has ended."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)


async def stop_holder(lock: Path, patience_seconds: float) -> bool:
    """Ask the process that holds a lock to end, and end it if it does not in time.

    Args:
        lock: Its lock file.
        patience_seconds: How long it may take.

    Returns:
        Whether there was one.
    """
    holder = open_holder(lock)
    if holder is None:
        return False
    _, pidfd = holder
    try:
        await stop_process(pidfd, patience_seconds)
    finally:
        os.close(pidfd)
    return True


async def stop_process(pidfd: int, patience_seconds: float) -> None:
    """Ask a process to end, and end it if it does not in time."""
    _signal(pidfd, signal.SIGTERM)
    try:
        async with asyncio.timeout(patience_seconds):
            await wait_exit(pidfd)
    except TimeoutError:
        _signal(pidfd, signal.SIGKILL)
        await wait_exit(pidfd)


def _signal(pidfd: int, number: signal.Signals) -> None:
    # It may end by itself at any moment.
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)
