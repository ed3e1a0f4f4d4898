"""What blocking clients are made of: methods of asynchronous ones, run on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from tiercel.core.errors import TiercelError

T = TypeVar("T")
P = ParamSpec("P")
Object = TypeVar("Object")
Object_co = TypeVar("Object_co", covariant=True)
Part = TypeVar("Part")
Opened = TypeVar("Opened", bound=AbstractAsyncContextManager[Any])


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon, so that a program that forgets to close the client still ends.
        self._thread = threading.Thread(target=self._loop.run_forever, name="tiercel-client", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end; an interrupt while waiting cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the loop and its thread."""
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Blocking(Generic[Object_co]):
    """A blocking view of an asynchronous object.

    Args:
        find: Finds the object; called on the loop's thread.
        loop: Finds the loop; an error while there is none.
    """

    def __init__(self, find: Callable[[], Object_co], loop: Callable[[], LoopThread]) -> None:
        self._find = find
        self._loop = loop


class BlockingClient(Blocking[Opened]):
    """A blocking view of a client; a context manager. Not for use within an event loop."""

    def __init__(self, client: Opened) -> None:
        super().__init__(lambda: client, self._running)
        self._thread: LoopThread | None = None

    def __enter__(self) -> Self:
        """Get ready; connects with the first call."""
        self._thread = LoopThread()
        self._thread.run(_entered(self._find()))
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End the connections."""
        if self._thread is not None:
            self._thread.run(_left(self._find()))
            self._thread.stop()
            self._thread = None

    def _running(self) -> LoopThread:
        if self._thread is None:
            raise TiercelError(f"The client is not open; use it in 'with {type(self).__name__}(...) as client:'.")
        return self._thread


async def _entered(client: AbstractAsyncContextManager[Any]) -> None:
    await client.__aenter__()


async def _left(client: AbstractAsyncContextManager[Any]) -> None:
    await client.__aexit__(None, None, None)


def blocking(
    method: Callable[Concatenate[Object, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[Object], P], T]:
    """The method of a blocking view that waits for what a coroutine of the object returns."""
    return blocking_part(lambda found: found, method)


def blocking_part(
    part: Callable[[Object], Part], method: Callable[Concatenate[Part, P], Coroutine[Any, Any, T]]
) -> Callable[Concatenate[Blocking[Object], P], T]:
    """The same of a part of the object."""

    @functools.wraps(method)
    def call(self: Blocking[Object], /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def run() -> T:
            return await method(part(self._find()), *args, **kwargs)

        return self._loop().run(run())

    return call


def iterating(
    method: Callable[Concatenate[Object, P], AsyncGenerator[T]],
) -> Callable[Concatenate[Blocking[Object], P], Generator[T]]:
    """The method of a blocking view that yields what the object's does."""

    @functools.wraps(method)
    def call(self: Blocking[Object], /, *args: P.args, **kwargs: P.kwargs) -> Generator[T]:
        items = method(self._find(), *args, **kwargs)

        async def next_item() -> T | None:
            return await anext(items, None)

        try:
            while (item := self._loop().run(next_item())) is not None:
                yield item
        finally:
            self._loop().run(items.aclose())

    return call
