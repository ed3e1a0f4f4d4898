"""Tasks with an owner: who has to start one is given :meth:`TaskOwner.start`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

_logger = logging.getLogger(__name__)

StartTask = Callable[[Coroutine[Any, Any, None], str], object]
"""Starts a task that somebody owns; takes the work and its name."""


class TaskOwner:
    """Starts tasks within a group. A task that fails says so in the log; it does not take the server with it."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run ``work`` until it ends or the server leaves."""
        task = self._group.create_task(self._guarded(work, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel_all(self) -> None:
        """Break off what still runs."""
        for task in self._tasks:
            task.cancel()

    @staticmethod
    async def _guarded(work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except Exception:  # a task serves one connection or one load; the others go on
            _logger.exception("Task '%s' failed", name)
