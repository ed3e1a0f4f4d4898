"""The only place in the agent that starts tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

from tiercel.core.logs import context_of

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
        """Start a task that belongs to this supervisor."""
        task = self._group.create_task(work, name=name, context=context_of(name))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel_all(self) -> None:
        """End all tasks that have not ended yet."""
        for task in self._tasks:
            task.cancel()


class Background:
    """Owns tasks that something needs beside what it is asked for; an error in one is a defect, and ends that one."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._note_end)
        return task

    async def close(self) -> None:
        """End all tasks and wait for that."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s failed", task.get_name(), exc_info=error)


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
