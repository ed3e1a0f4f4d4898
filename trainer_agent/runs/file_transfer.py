"""Sends the files that a run leaves behind to the broker, which keeps them, before the run's end is told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc
from grpc import aio

from tiercel.core.path_patterns import PathPatterns
from tiercel.trainer_agent.connection.calls import MAY_PASS, BrokerCalls, Stub
from tiercel.trainer_agent.disk.names import is_plain
from tiercel.trainer_agent.disk.outputs import CollectedFile, OutputLimits, collect, shown_path
from tiercel.trainer_agent.errors import TransferError
from tiercel.v1 import nodes_pb2

_log = logging.getLogger(__name__)

_PIECE_BYTES: Final = 1 << 20
_TOLD_AT_MOST: Final = 20
# An agent that goes on with what an earlier life began may call before its stream has told the broker who it is. A full
# disk of the broker's may have room soon, and until then the broker takes no end of a run either.
_MAY_PASS: Final = MAY_PASS | {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED}

_Call = aio.StreamStreamCall[nodes_pb2.SendFilesRequest, nodes_pb2.SendFilesResponse]


@dataclass(frozen=True, slots=True)
class FileTransfer:
    """Sends files of runs to the broker."""

    calls: BrokerCalls  # to the broker
    folder: Path  # where copies lie on their way; the agent's alone
    limits: OutputLimits = field(default_factory=OutputLimits)  # what is taken of a run
    # How long it is tried while the broker does not answer, and how long one try may take.
    patience_seconds: float = 600.0

    def clear(self) -> None:
        """Remove what an earlier life of the agent left on its way."""
        shutil.rmtree(self.folder, ignore_errors=True)

    async def send(self, run_id: str, job_folder: Path, working_folder: str, outputs: Sequence[str]) -> list[str]:
        """Send what a run that is over has left behind; the broker has it for good when this returns.

        Returns:
            What the run's log says of it.
        """
        if not is_plain(run_id):
            return []
        place = self.folder / run_id
        try:
            await asyncio.to_thread(_make_empty, place)
            found = await asyncio.to_thread(
                collect, job_folder, working_folder, PathPatterns(outputs), place, self.limits
            )
            left_out = dict(found.left_out)
            if found.files:
                left_out |= await self.calls.retried(
                    lambda stub: self._send(stub, run_id, found.files), self.patience_seconds, "its files", _MAY_PASS
                )
        except TransferError as error:
            return [f"none of its files are kept: {error.message}"]
        except OSError as error:
            return [f"none of its files are kept: they cannot be copied ({error})"]
        finally:
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
        if not found.files and not left_out:
            return ["no file that it left behind matches the job's outputs"]
        kept = [file for file in found.files if file.path not in left_out]
        size = sum(file.size_bytes for file in kept)
        _log.info("run %s: %d of its files, %d bytes, are with the broker", run_id, len(kept), size)
        return [*_lines(left_out), f"files that are kept: {len(kept)}, with {size} bytes"]

    async def _send(self, stub: Stub, run_id: str, files: Sequence[CollectedFile]) -> dict[str, str]:
        """Offer files and send those that are wanted; returns what is not kept of them, with the reasons."""
        call: _Call = stub.SendFiles(metadata=self.calls.metadata())
        try:
            await call.write(nodes_pb2.SendFilesRequest(header=self._header(run_id, files)))
            answer = await _read_answer(call)
            copies = {file.sha256: file.copy for file in files}
            if not copies.keys() >= set(answer.wanted):
                raise TransferError("the broker wants a file that was not offered")
            with contextlib.suppress(asyncio.InvalidStateError):  # the broker ended the call; its answer says why
                for sha256 in answer.wanted:
                    await _write_content(call, copies[sha256])
                await call.done_writing()
            await _read_answer(call)
            return dict(answer.left_out)
        finally:
            call.cancel()

    def _header(self, run_id: str, files: Sequence[CollectedFile]) -> nodes_pb2.FilesHeader:
        offered = [
            nodes_pb2.OfferedFile(path=file.path, size_bytes=file.size_bytes, sha256=file.sha256) for file in files
        ]
        return nodes_pb2.FilesHeader(
            node_id=self.calls.node_id, run_id=run_id, instance=self.calls.instance, files=offered
        )


async def _write_content(call: _Call, path: Path) -> None:
    with path.open("rb") as reader:
        while piece := await asyncio.to_thread(reader.read, _PIECE_BYTES):
            await call.write(nodes_pb2.SendFilesRequest(data=piece))


async def _read_answer(call: _Call) -> nodes_pb2.SendFilesResponse:
    answer = await call.read()
    if isinstance(answer, nodes_pb2.SendFilesResponse):
        return answer
    code = await call.code()
    if code is grpc.StatusCode.OK:
        raise TransferError("the broker ended the call too early")
    raise aio.AioRpcError(code, await call.initial_metadata(), await call.trailing_metadata(), await call.details())


def _lines(left_out: Mapping[str, str]) -> list[str]:
    """What is said of files that are not kept."""
    listed = list(left_out.items())
    lines = [f"{shown_path(path)} is not kept: {reason}" for path, reason in listed[:_TOLD_AT_MOST]]
    more = len(listed) - len(lines)
    return [*lines, f"nor are {more} other files"] if more else lines


def _make_empty(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True, mode=0o700)
