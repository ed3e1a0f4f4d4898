"""What the broker is given of a run: copies of checkpoints, and at its end, before it is told, what is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tiercel.trainer_agent.disk.job_folder import JobFolder
from tiercel.trainer_agent.errors import AgentError
from tiercel.trainer_agent.runs.checkpoint_copies import CheckpointCopies
from tiercel.trainer_agent.runs.checkpoint_transfer import CheckpointTransfer
from tiercel.trainer_agent.runs.file_transfer import FileTransfer
from tiercel.trainer_agent.runs.order import RunOrder
from tiercel.trainer_agent.runs.records import RunRecord


@dataclass(frozen=True, slots=True)
class HandOver:
    """Gives the broker what it keeps of runs."""

    checkpoints: CheckpointTransfer  # transfers those of jobs that are moved
    files: FileTransfer  # sends what runs leave behind
    copies: CheckpointCopies  # copies the checkpoints of runs that train

    def clear(self) -> None:
        """Remove what an earlier life of the agent left on its way."""
        self.checkpoints.clear()
        self.files.clear()

    async def give(
        self,
        record: RunRecord,
        order: RunOrder,
        folder: JobFolder,
        remember: Callable[[RunRecord], None],
        say: Callable[[str], None],
    ) -> RunRecord:
        """Give what the record of a run that ended says is pending; returns the record without that.

        The agent may die at any moment: its next life goes on where the record that was remembered last says.
        """
        if record.carry_pending:
            record = await self._send_checkpoint(replace(record, carry_pending=False), folder)
            if record.files_pending:
                remember(record)
        if record.files_pending:
            working_folder = order.launch(folder.path).working_folder
            for line in await self.files.send(record.run_id, folder.path, working_folder, order.spec.outputs):
                say(line)
        return replace(record, files_pending=False)

    async def _send_checkpoint(self, record: RunRecord, folder: JobFolder) -> RunRecord:
        """Send its checkpoint, now that nothing writes to it any more."""
        try:
            await self.checkpoints.send(record.run_id, folder)
        except AgentError as error:
            return replace(record, carry_error=error.message)
        return replace(record, carried=True)


def with_pending(record: RunRecord, order: RunOrder) -> RunRecord:
    """The record of a run that just ended, with what the broker is still to be given of it."""
    return replace(record, carry_pending=record.moved, files_pending=bool(order.spec.outputs) and not record.lost)


def is_pending(record: RunRecord) -> bool:
    """Whether the broker is still to be given something of a run."""
    return record.carry_pending or record.files_pending
