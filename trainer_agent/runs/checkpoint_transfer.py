"""Transfers checkpoints: of jobs that move, and copies for the case that a node is lost.

They are sent to the broker from the old node and fetched from it on the new one.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc

from tiercel.core.tasks import run_in_thread
from tiercel.trainer_agent.connection.calls import MAY_PASS, BrokerCalls
from tiercel.trainer_agent.connection.pace import Pace
from tiercel.trainer_agent.connection.parcels import Parcels, TransferLimits, make_empty
from tiercel.trainer_agent.disk.job_folder import JobFolder
from tiercel.trainer_agent.disk.names import is_plain
from tiercel.trainer_agent.disk.parts import Parts, remove_all_but_parts
from tiercel.trainer_agent.errors import RunFailedError, TransferError
from tiercel.v1 import nodes_pb2

_log = logging.getLogger(__name__)

# An agent that goes on with what an earlier life began may call before its stream has told the broker who it is.
_MAY_PASS: Final = MAY_PASS | {grpc.StatusCode.UNAUTHENTICATED}


@dataclass(frozen=True, slots=True)
class CheckpointTransfer:
    """Transfers checkpoints between a job's folder and the broker."""

    calls: BrokerCalls  # to the broker
    parts: Parts  # what has come of them; beside it lie those that are sent
    limits: TransferLimits = field(default_factory=TransferLimits)  # what they may take

    def clear(self) -> None:
        """Remove what an earlier life of the agent left on its way to the broker."""
        remove_all_but_parts(self.parts.folder)

    async def send(self, run_id: str, job_folder: JobFolder, pace: Pace | None = None) -> None:
        """Send the newest checkpoint of a run; the broker has it for good when this returns.

        Raises:
            TransferError: It cannot be sent; says why.
        """
        place = self._place(run_id)
        try:
            await run_in_thread(make_empty, place)
            files = await run_in_thread(job_folder.copy_checkpoint, place, self.limits.size_bytes)
            await self._parcels.send(nodes_pb2.CheckpointHeader(run_id=run_id), files, pace)
        except OSError as error:
            raise TransferError(f"its checkpoint cannot be copied ({error})") from error
        finally:
            await run_in_thread(_remove, place)
        _log.info("run %s: its checkpoint, %d bytes, is with the broker", run_id, sum(f.size_bytes for f in files))

    async def fetch(self, run_id: str, job_folder: JobFolder, owner: tuple[int, int] | None) -> None:
        """Put the checkpoint that a run goes on from into its job's folder.

        Raises:
            TransferError: It did not come.
            RunFailedError: It cannot be put there.
        """
        try:
            # By the job: a run that its agent was restarted under is followed by one with another id.
            async with self.parts.fetching(job_folder.path.name) as place:
                files = await self._parcels.fetch(nodes_pb2.FetchCheckpointRequest(run_id=run_id), place)
                await asyncio.to_thread(job_folder.put_checkpoint, files, owner)
        except OSError as error:
            raise TransferError(f"its checkpoint cannot be written ({error})") from error
        _log.info("run %s goes on from a checkpoint of another node", run_id)

    async def start_warm(self, run_id: str, job_folder: JobFolder, source: str, owner: tuple[int, int] | None) -> None:
        """Put the checkpoint of another job of this node into the folder of a job that has none.

        Raises:
            RunFailedError: There is none, or it cannot be put there.
        """
        if not is_plain(source):
            raise RunFailedError(f"The job id {source!r} is not a plain file name.")
        place = self._place(run_id)
        try:
            if await asyncio.to_thread(job_folder.has_checkpoint):
                return
            await asyncio.to_thread(make_empty, place)
            other = JobFolder(job_folder.path.parent / source)
            copies = await asyncio.to_thread(other.copy_checkpoint, place, self.limits.size_bytes)
            await asyncio.to_thread(job_folder.put_checkpoint, [copy.path for copy in copies], owner)
        except (OSError, TransferError) as error:
            reason = error.message if isinstance(error, TransferError) else str(error)
            raise RunFailedError(
                f"warm_start: the checkpoint of job {source} cannot be had on this node: {reason.rstrip('.')}. Submit "
                "the job without warm_start, or with that of another job."
            ) from error
        finally:
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
        _log.info("run %s begins with the checkpoint of job %s", run_id, source)

    @property
    def _parcels(self) -> Parcels:
        return Parcels(self.calls, "its checkpoint", self.limits, _MAY_PASS)

    def _place(self, run_id: str) -> Path:
        if not is_plain(run_id):
            raise RunFailedError(f"The run id {run_id!r} is not a plain file name.")
        return self.parts.folder / run_id


def _remove(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
