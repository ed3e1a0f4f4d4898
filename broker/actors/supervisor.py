"""The one place in the broker that starts tasks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType


class Supervisor:
    """Owns every task of the broker; leaving it ends them all.

    A task that fails for good does not take the others down by itself: whoever runs the broker waits for the failure
    and decides.
    """

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Future[BaseException] | None = None

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._failure = asyncio.get_running_loop().create_future()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await self._group.__aexit__(kind, error, trace)

    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run ``work`` as a task of the broker."""
        task = self._group.create_task(self._watch(work), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait_failed(self) -> BaseException:
        """The error of the first task that failed for good; waits for ever while all is well."""
        if self._failure is None:
            raise RuntimeError("the supervisor is not running")
        return await asyncio.shield(self._failure)

    async def _watch(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            if self._failure is not None and not self._failure.done():
                self._failure.set_result(error)
