"""Copies of checkpoints at the broker, of runs whose jobs ask for them: made while they train, at a bounded pace."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from tiercel.trainer_agent.disk.job_folder import JobFolder
from tiercel.trainer_agent.errors import AgentError
from tiercel.trainer_agent.reports.token_bucket import TokenBucket
from tiercel.trainer_agent.runs.checkpoint_transfer import CheckpointTransfer

_log = logging.getLogger(__name__)

DEFAULT_BYTES_PER_SECOND: Final = 16 * 1024**2
_AT_ONCE_BYTES: Final = 1024.0**2


class CheckpointCopies:
    """Sends the newest checkpoints of runs to the broker, one at a time."""

    def __init__(self, transfer: CheckpointTransfer, bytes_per_second: float = DEFAULT_BYTES_PER_SECOND) -> None:
        self._transfer = transfer
        self._bytes_per_second = bytes_per_second
        self._room = TokenBucket(bytes_per_second, _AT_ONCE_BYTES, time.monotonic())
        self._sending = asyncio.Lock()

    def seconds_for(self, size_bytes: int) -> float:
        """How long so much takes at least."""
        return size_bytes / self._bytes_per_second

    async def wait_for(self, size_bytes: int) -> None:
        """Wait until so much more may be sent."""
        self._room.take(size_bytes, time.monotonic())
        await asyncio.sleep(self._room.seconds_until_room(time.monotonic()))

    async def keep_up(self, run_id: str, folder: JobFolder, seconds: float, say: Callable[[str], None]) -> None:
        """Send the newest checkpoint of a run again and again while it trains, whenever there is a newer one.

        What fails is tried again when the next is due.

        Args:
            run_id: The run.
            folder: Its job's.
            seconds: How long after one the next is due.
            say: Writes a line into its log; what went wrong is said once.
        """
        sent: tuple[int, ...] = ()
        said = ""
        while True:
            await asyncio.sleep(seconds)
            try:
                stamp = await asyncio.to_thread(folder.checkpoint_stamp)
                if stamp and stamp != sent:
                    async with self._sending:
                        await self._transfer.send(run_id, folder, self)
                    sent, said = stamp, ""
            except (AgentError, OSError) as error:
                message = error.message if isinstance(error, AgentError) else str(error)
                _log.warning("run %s: its checkpoint was not copied: %s", run_id, message)
                if message != said:
                    say(f"the broker has no copy of the newest checkpoint: {message}")
                    said = message
