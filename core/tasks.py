"""Tasks that belong to one call; whoever owns the tasks of a process starts all others."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_T = TypeVar("_T")


async def run_until_one_ends(**work: Coroutine[Any, Any, None]) -> None:
    """Run several things at once until one of them ends or fails, then cancel the others and wait for them.

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


async def run_in_thread(function: Callable[..., _T], *arguments: Any) -> _T:
    """Call a function on a thread; whoever is cancelled meanwhile goes on only once it has returned.

    For functions whose files or memory the caller gives back afterwards: a thread cannot be cancelled.
    """
    work = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with contextlib.suppress(asyncio.CancelledError):  # asked once more to end: the thread does not hear it
                await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # nobody else asks for it
        raise
