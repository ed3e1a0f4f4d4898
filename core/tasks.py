"""Tasks that belong to one call; whoever owns the tasks of a process starts all others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine


async def run_until_one_ends(**work: Coroutine[Any, Any, None]) -> None:
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
