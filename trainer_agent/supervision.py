"""The only place in the agent that starts tasks, and the lock that keeps it the only agent of its state directory."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tiercel.trainer_agent.errors import SetupError

_log = logging.getLogger(__name__)


class Supervisor:
    """Owns tasks: leaving its ``async with`` block waits for them, and an error in one ends all.

    ``cancel_all`` ends the tasks that are left, which is how the agent leaves.
    """

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self.cancel_all()
        await self._group.__aexit__(kind, error, traceback)

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that belongs to this supervisor.

        Args:
            name: Shown in debuggers and tracebacks.
            work: What to do.
        """
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel_all(self) -> None:
        """End all tasks that have not ended yet."""
        for task in self._tasks:
            task.cancel()


class Signal:
    """Wakes all who wait for something to change. Check, then wait, with no other ``await`` in between."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def fire(self) -> None:
        """Wake who waits now."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        """Wait until it is fired the next time."""
        await self._event.wait()


async def run_until_first_ends(**work: Coroutine[Any, Any, None]) -> None:
    """Run several things at once until one of them ends or fails, then cancel the others and wait for them.

    Args:
        work: By the name of the task.

    Raises:
        Exception: Whatever ended the first one that failed.
    """
    tasks = [asyncio.create_task(coroutine, name=name) for name, coroutine in work.items()]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result


class LockedError(SetupError):
    """Another process holds the lock.

    Args:
        path: The lock file.
        pid: Who holds it, or 0 where the file does not say.
    """

    def __init__(self, path: Path, pid: int) -> None:
        super().__init__(
            f"An agent with pid {pid or 'unknown'} is running on {path.parent} already (it holds {path.name}). "
            "Stop it first, or choose another --state-dir."
        )
        self.pid = pid


@contextmanager
def lock(path: Path, name: str = "") -> Iterator[None]:
    """Hold a lock file for as long as the block lasts, with our pid inside; the kernel drops it when we die.

    Args:
        path: The file.
        name: One word that is written behind the pid, for whoever finds us there.

    Raises:
        LockedError: Somebody else holds it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(path, _pid_in(descriptor)) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {name}".rstrip().encode() + b"\n", 0)
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock file; a file that is missing is not locked."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _pid_in(descriptor: int) -> int:
    words = os.pread(descriptor, 256, 0).decode(errors="replace").split()
    return int(words[0]) if words and words[0].isdigit() else 0
