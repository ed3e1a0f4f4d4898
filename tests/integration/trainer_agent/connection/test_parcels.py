"""Files on their way from and to a broker of which nothing is heard any more, while the connection looks open."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from tiercel.trainer_agent.connection.calls import BrokerCalls
from tiercel.trainer_agent.connection.dialling import LocalDialler
from tiercel.trainer_agent.connection.pace import AT_ONCE_BYTES, Pace
from tiercel.trainer_agent.connection.parcels import Parcels, TransferLimits
from tiercel.trainer_agent.disk.job_folder import CopiedFile
from tiercel.v1 import nodes_pb2

CONTENT = bytes(range(256)) * 64 * 1024  # more than gRPC keeps for an end that takes nothing
SHA256 = hashlib.sha256(CONTENT).hexdigest()
HEADER = nodes_pb2.CheckpointHeader(
    files=[nodes_pb2.CheckpointFile(name="model.onnx", size_bytes=len(CONTENT), sha256=SHA256)]
)
PIECE = 1024 * 1024


class FallsSilent:
    """Begins well, and is not heard from then on; from the second call on all is well.

    Args:
        goes_on: Whether the next call may go on where the last one ended, as with a broker of this release.

    Attributes:
        given: What was sent of the content, over all calls.
        taken: What came of it.
    """

    def __init__(self, *, goes_on: bool = True) -> None:
        self.calls = 0
        self.given = 0
        self.taken = b""
        self._goes_on = goes_on

    async def fetch(
        self, request: nodes_pb2.FetchCheckpointRequest, context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[nodes_pb2.FetchCheckpointResponse]:
        header = nodes_pb2.CheckpointHeader(offset_bytes=request.offset_bytes if self._goes_on else 0)
        header.MergeFrom(HEADER)
        yield nodes_pb2.FetchCheckpointResponse(header=header)
        for offset in range(header.offset_bytes, len(CONTENT), PIECE):
            piece = CONTENT[offset : offset + PIECE]
            self.given += len(piece)
            yield nodes_pb2.FetchCheckpointResponse(data=piece)
            await self._fall_silent()

    async def send(
        self, requests: AsyncIterator[nodes_pb2.SendCheckpointRequest], context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[nodes_pb2.SendCheckpointResponse]:
        first = await anext(requests)
        if not (self._goes_on and first.header.resumes):
            self.taken = b""
        yield nodes_pb2.SendCheckpointResponse(offset_bytes=len(self.taken))
        async for request in requests:
            self.taken += request.data
            if len(self.taken) > PIECE:
                await self._fall_silent()
        yield nodes_pb2.SendCheckpointResponse()

    def handler(self) -> grpc.GenericRpcHandler:
        """Its part of the contract."""
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "FetchCheckpoint": grpc.unary_stream_rpc_method_handler(
                self.fetch,
                nodes_pb2.FetchCheckpointRequest.FromString,
                nodes_pb2.FetchCheckpointResponse.SerializeToString,
            ),
            "SendCheckpoint": grpc.stream_stream_rpc_method_handler(
                self.send,
                nodes_pb2.SendCheckpointRequest.FromString,
                nodes_pb2.SendCheckpointResponse.SerializeToString,
            ),
        }
        return grpc.method_handlers_generic_handler("tiercel.v1.NodesService", methods)

    async def _fall_silent(self) -> None:
        self.calls += 1
        if self.calls == 1:
            await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def parcels_of(broker: FallsSilent) -> AsyncIterator[Parcels]:
    server = aio.server()
    server.add_generic_rpc_handlers((broker.handler(),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    calls = BrokerCalls("n1", "instance", LocalDialler(lambda: address, str))
    try:
        yield Parcels(calls, "a version", TransferLimits(patience_seconds=60.0, silence_seconds=0.5))
    finally:
        await server.stop(0)


@pytest.mark.parametrize("goes_on", [True, False])
async def test_files_that_stop_to_come_are_fetched_from_there_on_or_anew(tmp_path: Path, *, goes_on: bool) -> None:
    broker = FallsSilent(goes_on=goes_on)
    async with parcels_of(broker) as parcels:
        (file,) = await parcels.fetch(nodes_pb2.FetchCheckpointRequest(endpoint="line", version=1), tmp_path / "here")
    assert file.read_bytes() == CONTENT
    assert (broker.given == len(CONTENT)) is goes_on


@pytest.mark.parametrize("goes_on", [True, False])
async def test_files_that_nobody_takes_any_more_are_sent_from_there_on_or_anew(
    tmp_path: Path, *, goes_on: bool
) -> None:
    broker, file = FallsSilent(goes_on=goes_on), tmp_path / "model.onnx"
    file.write_bytes(CONTENT)
    async with parcels_of(broker) as parcels:
        header = nodes_pb2.CheckpointHeader(endpoint="line", version=1)
        await parcels.send(header, [CopiedFile(file, len(CONTENT), SHA256)])
    assert broker.taken == CONTENT


@pytest.mark.parametrize(
    ("name", "left", "is_used"),
    [
        ("model.onnx", CONTENT[:PIECE], True),
        ("model.onnx", CONTENT, True),
        ("model.onnx", CONTENT[1:] + b"?", False),
        ("model.onnx", b"?" + CONTENT[1:PIECE], False),
        ("model.onnx", CONTENT + b"?", False),
        ("of-another-version", CONTENT[:PIECE], False),
    ],
    ids=["begun", "whole", "damaged", "begun by another", "too long", "unknown"],
)
async def test_what_an_earlier_life_had_fetched_is_not_fetched_again_unless_it_is_something_else(
    tmp_path: Path, name: str, left: bytes, *, is_used: bool
) -> None:
    broker = FallsSilent()
    broker.calls = 1  # all is well
    (tmp_path / name).write_bytes(left)
    async with parcels_of(broker) as parcels:
        (file,) = await parcels.fetch(nodes_pb2.FetchCheckpointRequest(endpoint="line", version=1), tmp_path)
    assert file.read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [file]
    assert (broker.given == len(CONTENT) - len(left)) is is_used


class FakeClock:
    """Seconds that pass only while somebody waits for them; ``moved`` has what had been transferred then."""

    def __init__(self, transferred: Callable[[], int]) -> None:
        self.seconds = 0.0
        self.moved: list[tuple[float, int]] = []
        self._transferred = transferred

    def now(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.moved.append((self.seconds, self._transferred()))
        self.seconds += seconds


@pytest.mark.parametrize("way", ["fetched", "sent"])
async def test_what_nobody_waits_for_goes_either_way_with_so_many_bytes_a_second_and_the_rest_as_fast_as_it_goes(
    tmp_path: Path, way: str
) -> None:
    broker, here, source = FallsSilent(), tmp_path / "here", tmp_path / "model.onnx"
    broker.calls = 1  # all is well
    source.write_bytes(CONTENT)
    clock = FakeClock(lambda: (here / "model.onnx").stat().st_size if way == "fetched" else len(broker.taken))
    pace = Pace(PIECE, now=clock.now, sleep=clock.sleep)
    paces = iter([None, *[pace] * 9])  # from the second half on somebody waits
    async with parcels_of(broker) as parcels:
        if way == "fetched":
            request = nodes_pb2.FetchCheckpointRequest(endpoint="line", version=1)
            await parcels.fetch(request, here, pace=lambda: next(paces, None))
        else:
            header = nodes_pb2.CheckpointHeader(endpoint="line", version=1)
            await parcels.send(header, [CopiedFile(source, len(CONTENT), SHA256)], pace)
    most = AT_ONCE_BYTES + PIECE
    assert all(moved <= seconds * PIECE + most for seconds, moved in clock.moved)
    paced = 9 * PIECE if way == "fetched" else len(CONTENT)
    assert clock.seconds == pytest.approx((paced - AT_ONCE_BYTES) / PIECE)
