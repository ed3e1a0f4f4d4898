"""Ends what runs in the foreground when it is asked to."""

from __future__ import annotations

import asyncio
import signal


def stop_on_signals(stopping: asyncio.Event) -> None:
    """Set the event on SIGINT and SIGTERM; a second signal ends the process at once, as if it had been killed."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        stopping.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
