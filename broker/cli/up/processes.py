"""Processes that need not be our children: waiting for their end and stopping them, by pidfd."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from tiercel.core.errors import UnavailableError
from tiercel.core.locks import LockHeldError, open_holder


async def wait_exit(pidfd: int) -> None:
    """Wait until the process of a pidfd has ended."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)


def find_holder(lock: Path) -> tuple[int, int] | None:
    """The process that holds a lock as (pid, pidfd), or None when nobody does; the caller closes the pidfd.

    Raises:
        UnavailableError: Somebody holds it, but the file does not say who.
    """
    try:
        return open_holder(lock)
    except LockHeldError:
        raise UnavailableError(f"A process holds {lock} without saying which; see who with 'fuser {lock}'.") from None


async def stop_holder(lock: Path, patience_seconds: float) -> bool:
    """Ask the process that holds a lock to end, and end it if it does not in time.

    Args:
        lock: Its lock file.
        patience_seconds: How long it may take.

    Returns:
        Whether there was one.
    """
    holder = find_holder(lock)
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
