"""A few files on their way to the broker or from it: the checkpoint of a run, or a version of an endpoint.

They go over calls of their own, so that megabytes do not stand in the way of heartbeats. A call that breaks off is
followed by one that goes on where it ended, where the broker can; so is one that an earlier life of the agent began.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shutil
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import grpc
from grpc import aio

from tiercel.trainer_agent.connection.address import DialError
from tiercel.trainer_agent.connection.calls import MAY_PASS, BrokerCalls, Stub
from tiercel.trainer_agent.connection.pace import Pace
from tiercel.trainer_agent.disk.job_folder import CopiedFile
from tiercel.trainer_agent.disk.names import is_plain
from tiercel.trainer_agent.errors import TransferError
from tiercel.v1 import nodes_pb2

_CHUNK_BYTES: Final = 256 * 1024

_T = TypeVar("_T")
_SendCall = aio.StreamStreamCall[nodes_pb2.SendCheckpointRequest, nodes_pb2.SendCheckpointResponse]
_FetchCall = aio.UnaryStreamCall[nodes_pb2.FetchCheckpointRequest, nodes_pb2.FetchCheckpointResponse]


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """What a transfer may take."""

    size_bytes: int = 1024**3  # the most that is transferred at once
    # How long it is tried while the broker does not answer, and how long one try may take.
    patience_seconds: float = 120.0
    # After so long without a piece that comes or is taken the connection counts as broken: TCP may never find out.
    silence_seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class Parcels:
    """Sends files to the broker and fetches files from it."""

    calls: BrokerCalls  # to the broker
    what: str  # what the files are, for errors: ``its checkpoint``
    limits: TransferLimits = field(default_factory=TransferLimits)  # what they may take
    may_pass: Collection[grpc.StatusCode] = MAY_PASS  # which refusals may be otherwise in a moment

    async def send(
        self, header: nodes_pb2.CheckpointHeader, files: Sequence[CopiedFile], pace: Pace | None = None
    ) -> None:
        """Send files; the broker has them for good when this returns.

        Args:
            header: What they are; completed with the files and who sends them.
            files: They must not change.
            pace: How fast; None for as fast as it goes.

        Raises:
            TransferError: They cannot be sent; says why.
        """
        header.MergeFrom(
            nodes_pb2.CheckpointHeader(
                node_id=self.calls.node_id,
                instance=self.calls.instance,
                resumes=True,
                files=[
                    nodes_pb2.CheckpointFile(name=file.path.name, size_bytes=file.size_bytes, sha256=file.sha256)
                    for file in files
                ],
            )
        )
        seconds = pace.seconds_for(sum(file.size_bytes for file in files)) if pace is not None else 0.0
        await self._retried(lambda stub: self._send(stub, header, files, pace), seconds)

    async def fetch(
        self,
        request: nodes_pb2.FetchCheckpointRequest,
        place: Path,
        check_room: Callable[[int], None] = lambda _: None,
        pace: Callable[[], Pace | None] = lambda: None,
    ) -> list[Path]:
        """Fetch files into a folder; each is what the broker said that it is.

        What the folder has of these very files is not fetched again; what else it has is removed.

        Args:
            request: What is asked for; completed with who asks.
            place: The folder; this agent's alone.
            check_room: Told how many bytes will come; raises TransferError where there is no room for them.
            pace: How fast they come from now on; None for as fast as it goes.

        Raises:
            TransferError: They did not come.
        """
        request.node_id, request.instance = self.calls.node_id, self.calls.instance
        arrived = _Arrived(place)
        await asyncio.to_thread(arrived.look)
        try:
            slow = pace()
            more_seconds = slow.seconds_for(self.limits.size_bytes) if slow is not None else 0.0
            return await self._retried(lambda stub: self._fetch(stub, request, arrived, check_room, pace), more_seconds)
        finally:
            arrived.close()

    async def _retried(self, call: Callable[[Stub], Awaitable[_T]], more_seconds: float = 0.0) -> _T:
        patience = self.limits.patience_seconds + more_seconds
        return await self.calls.retried(call, patience, self.what, self.may_pass)

    async def _send(
        self, stub: Stub, header: nodes_pb2.CheckpointHeader, files: Sequence[CopiedFile], pace: Pace | None
    ) -> None:
        call: _SendCall = stub.SendCheckpoint(metadata=self.calls.metadata())
        try:
            await call.write(nodes_pb2.SendCheckpointRequest(header=header))
            # Before the content: what is not wanted must not be sent for nothing.
            skipped = (await _read_answer(call)).offset_bytes
            for file in files:
                with file.path.open("rb") as reader:
                    reader.seek(min(skipped, file.size_bytes))
                    skipped -= reader.tell()
                    while piece := await asyncio.to_thread(reader.read, _CHUNK_BYTES):
                        if pace is not None:
                            await pace.wait_for(len(piece))
                        await _heard(call.write(nodes_pb2.SendCheckpointRequest(data=piece)), self.limits)
            await call.done_writing()
            await _read_answer(call)
        finally:
            call.cancel()

    async def _fetch(
        self,
        stub: Stub,
        request: nodes_pb2.FetchCheckpointRequest,
        arrived: _Arrived,
        check_room: Callable[[int], None],
        pace: Callable[[], Pace | None],
    ) -> list[Path]:
        request.offset_bytes = arrived.size_bytes
        call = stub.FetchCheckpoint(request, metadata=self.calls.metadata())
        try:
            first = await _heard(call.read(), self.limits)
            if not isinstance(first, nodes_pb2.FetchCheckpointResponse) or not first.HasField("header"):
                raise await _error_of(call)
            header = first.header
            self._check(header.files)
            if not arrived.goes_on_with(header) and not await arrived.take_up(header):
                await arrived.begin(header.files)
                if header.offset_bytes:
                    raise DialError("The files are others than those that had come in part.")
            check_room(sum(file.size_bytes for file in header.files) - arrived.size_bytes)
            while not arrived.is_whole:
                response = await _heard(call.read(), self.limits)
                if not isinstance(response, nodes_pb2.FetchCheckpointResponse):
                    raise await _error_of(call)
                await arrived.write(response.data)
                if (slow := pace()) is not None:  # what is not read the broker does not send
                    await slow.wait_for(len(response.data))
        finally:
            call.cancel()
        return arrived.paths

    def _check(self, files: Sequence[nodes_pb2.CheckpointFile]) -> None:
        names = {file.name for file in files if is_plain(file.name)}
        if len(names) < len(files) or sum(file.size_bytes for file in files) > self.limits.size_bytes:
            raise TransferError("the broker offers files with bad names, or too much")


class _Arrived:
    """What has come of some files, by one call or several: pieces that begin and end anywhere."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._files: list[nodes_pb2.CheckpointFile] = []
        self._left: list[nodes_pb2.CheckpointFile] = []
        self._writer: BinaryIO | None = None
        self._digest = hashlib.sha256()
        self._missing = 0
        self._is_taken_up = False  # whether its beginning is not known to be that of what comes
        self.size_bytes = 0

    @property
    def is_whole(self) -> bool:
        """Whether all of it is there."""
        return not self._left

    @property
    def paths(self) -> list[Path]:
        """Where the files are."""
        return [self._place / file.name for file in self._files]

    def look(self) -> None:
        """Begin with as much as lies in the folder, whose it is :meth:`take_up` finds out; blocks."""
        with contextlib.suppress(FileNotFoundError):
            self.size_bytes = sum(path.stat().st_size for path in self._place.iterdir())

    async def take_up(self, header: nodes_pb2.CheckpointHeader) -> bool:
        """Go on with what lay in the folder, if it is the beginning of what comes; of a file in part its end tells."""
        if self._files or not header.offset_bytes == self.size_bytes > 0:
            return False
        return await asyncio.to_thread(self._take_up, list(header.files))

    def _take_up(self, files: list[nodes_pb2.CheckpointFile]) -> bool:
        sizes = {path.name: path.stat().st_size for path in self._place.iterdir()}
        left = list(files)
        while left and sizes.get(left[0].name) == left[0].size_bytes:
            file = left.pop(0)
            del sizes[file.name]
            with (self._place / file.name).open("rb") as reader:
                if hashlib.file_digest(reader, "sha256").hexdigest() != file.sha256:
                    return False
        begun = sizes.pop(left[0].name, None) if left else None
        if sizes or (begun is not None and begun > left[0].size_bytes):
            return False
        self._files, self._left = files, left
        if begun is None:
            self._open()
            return True
        path = self._place / left[0].name
        with path.open("rb") as reader:
            self._digest = hashlib.file_digest(reader, "sha256")
        self._is_taken_up = True
        self._writer, self._missing = path.open("ab"), left[0].size_bytes - begun
        return True

    def goes_on_with(self, header: nodes_pb2.CheckpointHeader) -> bool:
        """Whether what comes now belongs behind what is there."""
        return header.offset_bytes == self.size_bytes > 0 and list(header.files) == self._files

    async def begin(self, files: Sequence[nodes_pb2.CheckpointFile]) -> None:
        """Begin anew, with these files."""
        self.close()
        await asyncio.to_thread(make_empty, self._place)
        self._files, self._left, self.size_bytes = list(files), list(files), 0
        self._open()

    async def write(self, data: bytes) -> None:
        """Take in what comes next.

        Raises:
            TransferError: It is not what was announced.
        """
        while data and self._writer is not None:
            piece, data = data[: self._missing], data[self._missing :]
            await asyncio.to_thread(self._writer.write, piece)
            self._digest.update(piece)
            self._missing -= len(piece)
            self.size_bytes += len(piece)
            self._close_whole()

    def close(self) -> None:
        """Let go of the file that is being written."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self) -> None:
        if self._left:
            self._writer = (self._place / self._left[0].name).open("xb")
            self._digest, self._missing = hashlib.sha256(), self._left[0].size_bytes
            self._close_whole()

    def _close_whole(self) -> None:
        if self._missing:
            return
        self.close()
        file = self._left.pop(0)
        taken_up, self._is_taken_up = self._is_taken_up, False
        if self._digest.hexdigest() != file.sha256:
            if taken_up:
                self._files, self.size_bytes = [], 0
                raise DialError("What had come in part was of other files.")
            raise TransferError(f"{file.name} arrived damaged: its SHA-256 differs")
        self._open()


async def _heard(step: Awaitable[_T], limits: TransferLimits) -> _T:
    """A step of a transfer that is under way; where the other end is not heard, the transfer is begun anew."""
    try:
        async with asyncio.timeout(limits.silence_seconds):
            return await step
    except TimeoutError:
        raise DialError(f"Nothing was heard for {limits.silence_seconds:g} s.") from None


async def _read_answer(call: _SendCall) -> nodes_pb2.SendCheckpointResponse:
    answer = await call.read()
    if not isinstance(answer, nodes_pb2.SendCheckpointResponse):
        raise await _error_of(call)
    return answer


async def _error_of(call: _FetchCall | _SendCall) -> Exception:
    """The call's error, which may pass, or that it ended too early."""
    code = await call.code()
    if code is grpc.StatusCode.OK:
        return TransferError("the broker ended the call too early")
    return aio.AioRpcError(code, await call.initial_metadata(), await call.trailing_metadata(), await call.details())


def make_empty(place: Path) -> None:
    """Make a folder of the agent's, without what it had; blocks."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True, mode=0o700)
