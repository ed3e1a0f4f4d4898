"""Runs what starts the product from a command line: an interrupt tidies up, what users can mend is a sentence."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

import typer

from testing.application_process import ApplicationError
from testing.product import ProductError
from tiercel import TiercelError

INTERRUPTED = 130
_EXPECTED = (ProductError, ApplicationError, TiercelError)

_T = TypeVar("_T")


def run_until_end(work: Coroutine[Any, Any, _T], *expected: type[Exception]) -> _T:
    """Run something that starts the product.

    Raises:
        typer.Exit: With 130 after an interrupt, and with 1 after an error that is expected.
    """

    async def guarded() -> _T:
        task = asyncio.current_task()
        if task is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return asyncio.run(guarded())
    except (KeyboardInterrupt, asyncio.CancelledError):
        typer.echo("Stopped before the end; nothing is left running, and finished runs are kept.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        cause: BaseException = error
        while isinstance(cause, BaseExceptionGroup):  # task groups wrap what fails in them
            cause = cause.exceptions[0]
        if not isinstance(cause, (*_EXPECTED, *expected)):
            raise
        typer.echo(f"Error: {cause}", err=True)
        raise typer.Exit(1) from None


async def is_late(over: asyncio.Event, seconds: float) -> bool:
    """Wait until it is over; returns whether that takes longer than so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await over.wait()
    except TimeoutError:
        return True
    return False
