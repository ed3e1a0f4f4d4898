"""Copies of checkpoints at the broker, of runs whose jobs ask for them: made while they train, at a bounded pace."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tiercel.trainer_agent.connection.pace import Pace
from tiercel.trainer_agent.disk.job_folder import JobFolder
from tiercel.trainer_agent.errors import AgentError
from tiercel.trainer_agent.runs.checkpoint_transfer import CheckpointTransfer

_log = logging.getLogger(__name__)


class CheckpointCopies:
    """Sends the newest checkpoints of runs to the broker, one at a time."""

    def __init__(self, transfer: CheckpointTransfer, pace: Pace) -> None:
        self._transfer = transfer
        self._pace = pace
        self._sending = asyncio.Lock()

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
                        await self._transfer.send(run_id, folder, self._pace)
                    sent, said = stamp, ""
            except (AgentError, OSError) as error:
                message = error.message if isinstance(error, AgentError) else str(error)
                _log.warning("run %s: its checkpoint was not copied: %s", run_id, message)
                if message != said:
                    say(f"the broker has no copy of the newest checkpoint: {message}")
                    said = message
