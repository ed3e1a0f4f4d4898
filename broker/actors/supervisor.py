"""The one place in the broker that starts tasks."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tiercel.core.logs import context_of

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")


class Supervisor:
    """Owns every task of the broker; leaving it ends them all.

    A task that fails for good does not take the others down by itself: whoever runs the broker waits for the failure
    and decides.

    Args:
        cancel_again_seconds: A task that goes on for so long after it was cancelled is cancelled again.
    """

    def __init__(self, cancel_again_seconds: float = 5.0) -> None:
        self._cancel_again_seconds = cancel_again_seconds
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
        try:
            while self._tasks:
                for task in self._tasks:
                    task.cancel()
                # An error at the same moment may have taken the place of the cancellation, so that it is said again.
                await asyncio.wait(self._tasks, timeout=self._cancel_again_seconds)
        finally:
            # The error, if any, goes on as it is: given to the group it would come out wrapped in another.
            await self._group.__aexit__(None, None, None)

    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run ``work`` as a task of the broker."""
        task = self._group.create_task(self._watch(work, name), name=name, context=context_of(name))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task that is cancelled before its first step has not begun its work, which would complain about that.
        task.add_done_callback(lambda _: work.close())

    async def shield(self, work: Coroutine[Any, Any, ResultT], *, name: str) -> ResultT:
        """Run ``work`` to its end, even if whoever waits for it is cancelled in the middle.

        For what must not be left half done, such as a change that is durable but not acted upon.
        """
        outcome: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        self.start(_report_to(outcome, work), name=name)
        return await asyncio.shield(outcome)

    async def wait_failed(self) -> BaseException:
        """The error of the first task that failed for good; waits for ever while all is well."""
        if self._failure is None:
            raise RuntimeError("the supervisor is not running")
        return await asyncio.shield(self._failure)

    async def _watch(self, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except Exception as error:
            logger.exception("%s failed for good", name)
            if self._failure is not None and not self._failure.done():
                self._failure.set_result(error)


async def _report_to(outcome: asyncio.Future[ResultT], work: Coroutine[Any, Any, ResultT]) -> None:
    try:
        result = await work
    except asyncio.CancelledError:
        outcome.cancel()
        raise
    except Exception as error:
        if not outcome.done():
            outcome.set_exception(error)
            outcome.exception()  # whoever waited may have gone; nobody need ask
        return
    if not outcome.done():
        outcome.set_result(result)
