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

_INTERRUPTED = "its agent was restarted while it sent the checkpoint"


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

    async def of_run(
        self,
        record: RunRecord,
        order: RunOrder,
        folder: JobFolder,
        remember: Callable[[RunRecord], None],
        say: Callable[[str], None],
    ) -> RunRecord:
        """Give what is left of a run; returns how it ended then.

        The agent may die at any moment: its next life goes on with the files, and says of the checkpoint that it is not
        there.
        """
        record = replace(record, files_pending=bool(order.spec.outputs) and not record.lost)
        if record.moved:
            remember(replace(record, carry_error=_INTERRUPTED))
            record = await self._send_checkpoint(record, folder)
        if record.files_pending:
            remember(record)
        return await self.of_files(record, order, folder, say)

    async def of_files(
        self, record: RunRecord, order: RunOrder, folder: JobFolder, say: Callable[[str], None]
    ) -> RunRecord:
        """Give the files of a run that its record says are pending; returns the record without that."""
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
