"""Files on their way from and to a broker of which nothing is heard any more, while the connection looks open."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from tiercel.trainer_agent.connection.calls import BrokerCalls
from tiercel.trainer_agent.connection.dialling import LocalDialler
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
    """Begins well, and is not heard from then on; from the second call on all is well."""

    def __init__(self) -> None:
        self.calls = 0
        self.taken = b""

    async def fetch(
        self, request: nodes_pb2.FetchCheckpointRequest, context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[nodes_pb2.FetchCheckpointResponse]:
        yield nodes_pb2.FetchCheckpointResponse(header=HEADER)
        for offset in range(0, len(CONTENT), PIECE):
            yield nodes_pb2.FetchCheckpointResponse(data=CONTENT[offset : offset + PIECE])
            await self._fall_silent()

    async def send(
        self, requests: AsyncIterator[nodes_pb2.SendCheckpointRequest], context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[nodes_pb2.SendCheckpointResponse]:
        await anext(requests)
        yield nodes_pb2.SendCheckpointResponse()
        await self._fall_silent()
        self.taken = b""  # on a slow machine a call may be begun anew once more
        async for request in requests:
            self.taken += request.data
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


async def test_files_that_stop_to_come_are_fetched_anew(tmp_path: Path) -> None:
    async with parcels_of(FallsSilent()) as parcels:
        (file,) = await parcels.fetch(nodes_pb2.FetchCheckpointRequest(endpoint="line", version=1), tmp_path / "here")
    assert file.read_bytes() == CONTENT


async def test_files_that_nobody_takes_any_more_are_sent_anew(tmp_path: Path) -> None:
    broker, file = FallsSilent(), tmp_path / "model.onnx"
    file.write_bytes(CONTENT)
    async with parcels_of(broker) as parcels:
        header = nodes_pb2.CheckpointHeader(endpoint="line", version=1)
        await parcels.send(header, [CopiedFile(file, len(CONTENT), SHA256)])
    assert broker.taken == CONTENT
