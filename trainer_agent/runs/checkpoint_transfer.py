"""Transfers checkpoints: of jobs that move, and copies for the case that a node is lost.

They are sent to the broker from the old node and fetched from it on the new one, over calls of their own, so that
megabytes do not stand in the way of heartbeats.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeVar

import grpc
from grpc import aio

from tiercel.core.tasks import run_in_thread
from tiercel.trainer_agent.connection.calls import BrokerCalls, Stub
from tiercel.trainer_agent.disk.job_folder import CopiedFile, JobFolder
from tiercel.trainer_agent.disk.names import is_plain
from tiercel.trainer_agent.errors import RunFailedError, TransferError
from tiercel.v1 import nodes_pb2

_log = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 256 * 1024

_T = TypeVar("_T")


class Pace(Protocol):
    """How fast something may be sent."""

    def seconds_for(self, size_bytes: int) -> float:
        """How long so much takes at least."""
        ...

    async def wait_for(self, size_bytes: int) -> None:
        """Wait until so much more may be sent."""
        ...


_SendCall = aio.StreamStreamCall[nodes_pb2.SendCheckpointRequest, nodes_pb2.SendCheckpointResponse]
_FetchCall = aio.UnaryStreamCall[nodes_pb2.FetchCheckpointRequest, nodes_pb2.FetchCheckpointResponse]


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """What a checkpoint may take.

    Attributes:
        size_bytes: The largest one that is transferred.
        patience_seconds: How long it is tried while the broker does not answer, and how long one try may take.
    """

    size_bytes: int = 1024**3
    patience_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class CheckpointTransfer:
    """Transfers checkpoints between a job's folder and the broker.

    Attributes:
        calls: To the broker.
        folder: Where they lie on their way; the agent's alone.
        limits: What they may take.
    """

    calls: BrokerCalls
    folder: Path
    limits: TransferLimits = field(default_factory=TransferLimits)

    def clear(self) -> None:
        """Remove what an earlier life of the agent left on its way."""
        shutil.rmtree(self.folder, ignore_errors=True)

    async def send(self, run_id: str, job_folder: JobFolder, pace: Pace | None = None) -> None:
        """Send the newest checkpoint of a run; the broker has it for good when this returns.

        Args:
            run_id: The run.
            job_folder: Its job's.
            pace: How fast, where that is bounded.

        Raises:
            TransferError: It cannot be sent; says why.
        """
        place = self._place(run_id)
        try:
            await run_in_thread(_make_empty, place)
            files = await run_in_thread(job_folder.copy_checkpoint, place, self.limits.size_bytes)
            seconds = pace.seconds_for(sum(file.size_bytes for file in files)) if pace is not None else 0.0
            await self._retried(lambda stub: self._send(stub, run_id, files, pace), seconds)
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
        place = self._place(run_id)
        try:
            await asyncio.to_thread(_make_empty, place)
            files = await self._retried(lambda stub: self._fetch(stub, run_id, place))
            await asyncio.to_thread(job_folder.put_checkpoint, files, owner)
        except OSError as error:
            raise TransferError(f"its checkpoint cannot be written ({error})") from error
        finally:
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
        _log.info("run %s goes on from a checkpoint of another node", run_id)

    async def start_warm(self, run_id: str, job_folder: JobFolder, source: str, owner: tuple[int, int] | None) -> None:
        """Put the checkpoint of another job of this node into the folder of a job that has none.

        Args:
            run_id: The run that is about to start.
            job_folder: Its job's.
            source: The other job.
            owner: User and group id that the run has, or None if they are the agent's.

        Raises:
            RunFailedError: There is none, or it cannot be put there.
        """
        if not is_plain(source):
            raise RunFailedError(f"The job id {source!r} is not a plain file name.")
        place = self._place(run_id)
        try:
            if await asyncio.to_thread(job_folder.has_checkpoint):
                return
            await asyncio.to_thread(_make_empty, place)
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

    def _place(self, run_id: str) -> Path:
        if not is_plain(run_id):
            raise RunFailedError(f"The run id {run_id!r} is not a plain file name.")
        return self.folder / run_id

    async def _retried(self, call: Callable[[Stub], Awaitable[_T]], more_seconds: float = 0.0) -> _T:
        return await self.calls.retried(call, self.limits.patience_seconds + more_seconds, "its checkpoint")

    async def _send(self, stub: Stub, run_id: str, files: Sequence[CopiedFile], pace: Pace | None) -> None:
        call: _SendCall = stub.SendCheckpoint(metadata=self.calls.metadata())
        try:
            await call.write(nodes_pb2.SendCheckpointRequest(header=self._header(run_id, files)))
            await _read_answer(call)  # before the content: what is not wanted must not be sent for nothing
            for file in files:
                with file.path.open("rb") as reader:
                    while piece := await asyncio.to_thread(reader.read, _CHUNK_BYTES):
                        if pace is not None:
                            await pace.wait_for(len(piece))
                        await call.write(nodes_pb2.SendCheckpointRequest(data=piece))
            await call.done_writing()
            await _read_answer(call)
        finally:
            call.cancel()

    def _header(self, run_id: str, files: Sequence[CopiedFile]) -> nodes_pb2.CheckpointHeader:
        listed = [
            nodes_pb2.CheckpointFile(name=file.path.name, size_bytes=file.size_bytes, sha256=file.sha256)
            for file in files
        ]
        return nodes_pb2.CheckpointHeader(
            node_id=self.calls.node_id, run_id=run_id, files=listed, instance=self.calls.instance
        )

    async def _fetch(self, stub: Stub, run_id: str, place: Path) -> list[Path]:
        _make_empty(place)
        request = nodes_pb2.FetchCheckpointRequest(
            node_id=self.calls.node_id, run_id=run_id, instance=self.calls.instance
        )
        call = stub.FetchCheckpoint(request, metadata=self.calls.metadata())
        first = await call.read()
        if not isinstance(first, nodes_pb2.FetchCheckpointResponse) or not first.HasField("header"):
            raise await _error_of(call)
        files = list(first.header.files)
        self._check(files)
        content = _Content(call)
        for file in files:
            await content.write(file, place / file.name)
        return [place / file.name for file in files]

    def _check(self, files: Sequence[nodes_pb2.CheckpointFile]) -> None:
        names = {file.name for file in files if is_plain(file.name)}
        if len(names) < len(files) or sum(file.size_bytes for file in files) > self.limits.size_bytes:
            raise TransferError("the broker offers files with bad names, or too much")


class _Content:
    """The content of one file after the other, out of pieces that begin and end anywhere."""

    def __init__(self, call: _FetchCall) -> None:
        self._call = call
        self._left = b""

    async def write(self, file: nodes_pb2.CheckpointFile, target: Path) -> None:
        digest = hashlib.sha256()
        missing = file.size_bytes
        with target.open("xb") as writer:
            while missing:
                piece = (await self._next())[:missing]
                self._left = self._left[len(piece) :]
                missing -= len(piece)
                digest.update(piece)
                await asyncio.to_thread(writer.write, piece)
        if digest.hexdigest() != file.sha256:
            raise TransferError(f"{file.name} arrived damaged: its SHA-256 differs")

    async def _next(self) -> bytes:
        while not self._left:
            response = await self._call.read()
            if not isinstance(response, nodes_pb2.FetchCheckpointResponse):
                raise await _error_of(self._call)
            self._left = response.data
        return self._left


async def _read_answer(call: _SendCall) -> None:
    if not isinstance(await call.read(), nodes_pb2.SendCheckpointResponse):
        raise await _error_of(call)


async def _error_of(call: _FetchCall | _SendCall) -> Exception:
    """The call's error, which may pass, or that it ended too early."""
    code = await call.code()
    if code is grpc.StatusCode.OK:
        return TransferError("the broker ended the call too early")
    return aio.AioRpcError(code, await call.initial_metadata(), await call.trailing_metadata(), await call.details())


def _remove(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)


def _make_empty(place: Path) -> None:
    _remove(place)
    place.mkdir(parents=True, mode=0o700)
