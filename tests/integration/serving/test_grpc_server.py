"""The gRPC server over real sockets: grpcio as its client, and raw HTTP/2 where grpcio would not say such things."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import h2.config
import h2.connection
import h2.events
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from testing.until import until
from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.serving.connections.listening import open_listener, port_of
from tiercel.serving.grpc.server.calls import Call, Method
from tiercel.serving.grpc.server.health import Health
from tiercel.serving.grpc.server.server import GrpcLimits, Listener
from tiercel.serving.grpc.server.wire import Status
from tiercel.serving.http2.streams import Http2Limits
from tiercel.serving.rest.messages import ByteBudget

MEBIBYTE = 1024**2
PATH = "/test.Service/"
LIMITS = GrpcLimits(Http2Limits(8192, 300, MEBIBYTE, 60.0, 10.0), 4 * MEBIBYTE, 3, 20)
TIMEOUT = 30.0


@dataclass
class Service:
    """Methods of every kind, and what their callers did."""

    waiting: asyncio.Queue[Call] = field(default_factory=asyncio.Queue)
    cancelled: asyncio.Queue[Call] = field(default_factory=asyncio.Queue)
    health: Health = field(default_factory=lambda: Health(("s",)))

    def methods(self) -> dict[str, Method]:
        request = pb.ModelInferRequest
        own = {
            "Echo": Method(request, lambda message, call: call.answer(message.SerializeToString())),
            "Crash": Method(request, self.crash),
            "Refuse": Method(request, lambda _, call: call.finish(Status.NOT_FOUND, '100 % weg: é\n"…"')),
            "Wait": Method(request, self.wait),
            "Seen": Method(request, self.seen),
            "Many": Method(request, self.many),
            "Chat": Method(request, self.chat, streaming=True, on_end=lambda call: call.finish()),
        }
        return {PATH + name: method for name, method in own.items()} | self.health.methods()

    def crash(self, _: Any, __: Call) -> None:
        raise ZeroDivisionError

    def wait(self, _: Any, call: Call) -> None:
        call.on_cancel = lambda: self.cancelled.put_nowait(call)
        self.waiting.put_nowait(call)

    def seen(self, _: Any, call: Call) -> None:
        answer = pb.ModelInferRequest()
        for name, value in call.head.metadata.items():
            answer.parameters[name].string_param = str(value)
        remaining = call.remaining()
        answer.parameters["remaining"].double_param = -1.0 if remaining is None else remaining
        call.answer(answer.SerializeToString())

    def many(self, message: Any, call: Call) -> None:
        for count in range(5):
            call.send(pb.ModelInferRequest(id=f"{message.id}{count}").SerializeToString())
        call.finish()

    def chat(self, message: Any, call: Call) -> None:
        call.send(pb.ModelInferRequest(id=message.id.upper()).SerializeToString())


@dataclass
class Running:
    """A server and a channel to it."""

    service: Service
    listener: Listener
    budget: ByteBudget
    port: int
    channel: aio.Channel

    async def call(self, name: str, request: Any = None, **more: Any) -> Any:
        message = request if isinstance(request, bytes) else (request or pb.ModelInferRequest()).SerializeToString()
        method: Any = self.channel.unary_unary(PATH + name, bytes, pb.ModelInferRequest.FromString)
        return await method(message, **{"timeout": TIMEOUT} | more)


@pytest.fixture
async def running(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Running]:
    service, budget = Service(), ByteBudget(16 * MEBIBYTE)
    listener = Listener(service.methods(), LIMITS, budget)
    listening = open_listener("127.0.0.1", 0)
    await listener.start(listening)
    port = port_of(listening)
    options = [("grpc.max_receive_message_length", -1)]
    async with aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        yield Running(service, listener, budget, port, channel)
    await listener.stop(TIMEOUT)
    assert not listener.connections
    assert listener.calls == 0
    assert budget.used == 0


async def refused(work: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(aio.AioRpcError) as caught:
        await work
    return caught.value.code(), caught.value.details() or ""


async def test_idle_connections_keep_nobody_out(running: Running) -> None:
    idle = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(LIMITS.connections)]
    await until(lambda: len(running.listener.connections) == LIMITS.connections)
    assert await running.call("Echo") == pb.ModelInferRequest()
    async with asyncio.timeout(TIMEOUT):
        await idle[0][0].read(-1)  # the longest idle one is closed
    assert len(running.listener.connections) == LIMITS.connections
    for _, writer in idle:
        writer.close()


@pytest.mark.parametrize("size", [0, 5, 16_384, 16_385, 3 * MEBIBYTE])
@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_messages_of_any_size_come_back(running: Running, size: int, compression: grpc.Compression) -> None:
    request = pb.ModelInferRequest(id="7", raw_input_contents=[bytes(range(256)) * (size // 256 + 1)][: size > 0])
    assert await running.call("Echo", request, compression=compression) == request


async def test_many_calls_at_once(running: Running) -> None:
    requests = [pb.ModelInferRequest(id=str(number)) for number in range(200)]
    assert await asyncio.gather(*(running.call("Echo", request) for request in requests)) == requests


@pytest.mark.parametrize(
    ("name", "request_", "code", "details"),
    [
        ("Nothing", None, grpc.StatusCode.UNIMPLEMENTED, "there is no method /test.Service/Nothing"),
        ("Refuse", None, grpc.StatusCode.NOT_FOUND, '100 % weg: é\n"…"'),
        ("Crash", None, grpc.StatusCode.INTERNAL, "the server failed; its log says more"),
        ("Echo", b"\xff\xff", grpc.StatusCode.INVALID_ARGUMENT, "not a well-formed ModelInferRequest"),
        ("Echo", bytes(4 * MEBIBYTE + 1), grpc.StatusCode.RESOURCE_EXHAUSTED, "over 4194304 bytes"),
    ],
)
async def test_failures(running: Running, name: str, request_: Any, code: grpc.StatusCode, details: str) -> None:
    found = await refused(running.call(name, request_))
    assert found[0] is code
    assert details in found[1]
    assert await running.call("Echo") == pb.ModelInferRequest()


async def test_a_compressed_message_may_not_grow_beyond_the_limit(running: Running) -> None:
    bomb = pb.ModelInferRequest(raw_input_contents=[bytes(4 * MEBIBYTE)])
    code, details = await refused(running.call("Echo", bomb, compression=grpc.Compression.Gzip))
    assert (code, "over 4194304 bytes" in details) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)


async def test_metadata_and_deadlines_reach_the_method(running: Running) -> None:
    seen = (await running.call("Seen", metadata=[("x-a", "b"), ("y-bin", b"\0\xff")], timeout=90)).parameters
    assert seen["x-a"].string_param == "b"
    assert seen["y-bin"].string_param == str(b"\0\xff")
    assert 0 < seen["remaining"].double_param <= 90.9  # gRPC rounds it up, by up to a hundredth
    assert (await running.call("Seen", timeout=None)).parameters["remaining"].double_param == -1


async def test_metadata_over_the_limit_is_refused(running: Running) -> None:
    code, details = await refused(running.call("Echo", metadata=[(f"x-{n}", "y" * 100) for n in range(70)]))
    assert (code, details) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "the metadata is over 8192 bytes")


async def test_who_gives_up_is_not_worked_for_any_more(running: Running) -> None:
    asked = asyncio.ensure_future(running.call("Wait"))
    call = await asyncio.wait_for(running.service.waiting.get(), TIMEOUT)
    asked.cancel()
    assert await asyncio.wait_for(running.service.cancelled.get(), TIMEOUT) is call
    assert call.is_done
    call.answer(b"into nothing")
    code, _ = await refused(running.call("Wait", timeout=0.05))
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(running.service.cancelled.get(), TIMEOUT)


async def test_streams_in_both_directions(running: Running) -> None:
    serialize, parse = pb.ModelInferRequest.SerializeToString, pb.ModelInferRequest.FromString
    many = running.channel.unary_stream(PATH + "Many", serialize, parse)(pb.ModelInferRequest(id="a"), timeout=TIMEOUT)
    assert [answer.id async for answer in many] == ["a0", "a1", "a2", "a3", "a4"]
    chat = running.channel.stream_stream(PATH + "Chat", serialize, parse)(timeout=TIMEOUT)
    for word in ("so", "then"):
        await chat.write(pb.ModelInferRequest(id=word))
        answer: Any = await chat.read()
        assert answer.id == word.upper()
    await chat.done_writing()
    assert await chat.read() is aio.EOF
    assert await chat.code() is grpc.StatusCode.OK


async def test_health_is_told_as_it_changes(running: Running) -> None:
    stub: Any = health_pb2_grpc.HealthStub(running.channel)
    kinds = health_pb2.HealthCheckResponse
    code, _ = await refused(stub.Check(health_pb2.HealthCheckRequest(service="x"), timeout=TIMEOUT))
    assert code is grpc.StatusCode.NOT_FOUND
    unknown = stub.Watch(health_pb2.HealthCheckRequest(service="x"), timeout=TIMEOUT)
    assert (await unknown.read()).status == kinds.SERVICE_UNKNOWN
    unknown.cancel()
    watch = stub.Watch(health_pb2.HealthCheckRequest(service="s"), timeout=TIMEOUT)
    assert (await watch.read()).status == kinds.NOT_SERVING
    running.service.health.set(serving=True)
    assert (await watch.read()).status == kinds.SERVING
    stopped = asyncio.ensure_future(running.listener.stop(TIMEOUT))
    assert (await refused(watch.read()))[0] is grpc.StatusCode.UNAVAILABLE
    await stopped


async def test_a_server_that_leaves_answers_what_it_has(running: Running) -> None:
    asked = asyncio.ensure_future(running.call("Wait"))
    call = await asyncio.wait_for(running.service.waiting.get(), TIMEOUT)
    stopped = asyncio.ensure_future(running.listener.stop(TIMEOUT))
    await asyncio.sleep(0)
    assert not stopped.done()
    call.answer(pb.ModelInferRequest(id="at last").SerializeToString())
    assert (await asked).id == "at last"
    await stopped


async def test_a_server_that_leaves_waits_no_longer_than_it_may(running: Running) -> None:
    asked = asyncio.ensure_future(running.call("Wait"))
    await asyncio.wait_for(running.service.waiting.get(), TIMEOUT)
    await running.listener.stop(0.01)
    assert (await refused(asked))[0] is grpc.StatusCode.UNAVAILABLE
    assert running.service.cancelled.qsize() == 1


async def test_calls_over_the_limit_are_refused(running: Running) -> None:
    waiting = [asyncio.ensure_future(running.call("Wait")) for _ in range(20)]
    calls = [await asyncio.wait_for(running.service.waiting.get(), TIMEOUT) for _ in waiting]
    code, _ = await refused(running.call("Echo"))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    for call in calls:
        call.answer(b"")
    await asyncio.gather(*waiting)


async def test_a_port_in_use_is_refused(running: Running) -> None:
    with pytest.raises(OSError, match="in use"):
        open_listener("127.0.0.1", running.port)


class Raw:
    """An HTTP/2 client that says anything."""

    def __init__(self) -> None:
        self._http2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding=None))

    async def __call__(
        self, port: int, path: str, body: bytes, change: dict[bytes, bytes | None]
    ) -> dict[bytes, bytes]:
        """Headers and trailers of the answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        fields: dict[bytes, bytes | None] = {
            b":method": b"POST",
            b":scheme": b"http",
            b":path": path.encode(),
            b":authority": b"server",
            b"content-type": b"application/grpc",
            **change,
        }
        self._http2.initiate_connection()
        self._http2.send_headers(1, [(name, value) for name, value in fields.items() if value is not None])
        self._http2.send_data(1, body, end_stream=True)
        found: dict[bytes, bytes] = {}
        try:
            async with asyncio.timeout(TIMEOUT):
                while True:
                    writer.write(self._http2.data_to_send())
                    data = await reader.read(65536)
                    assert data
                    for event in self._http2.receive_data(data):
                        if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                            found.update(event.headers)
                        elif isinstance(event, h2.events.StreamEnded):
                            return found
        finally:
            writer.close()
            await writer.wait_closed()


EMPTY = b"\0\0\0\0\0"


@pytest.mark.parametrize(
    ("body", "change", "expected"),
    [
        (EMPTY, {}, {b":status": b"200", b"grpc-status": b"0"}),
        (EMPTY, {b"content-type": b"application/grpc+proto"}, {b"grpc-status": b"0"}),
        (EMPTY, {b"content-type": b"application/json"}, {b":status": b"415"}),
        (EMPTY, {b"content-type": None}, {b":status": b"415"}),
        (EMPTY, {b":method": b"GET"}, {b":status": b"405"}),
        (
            EMPTY,
            {b"grpc-encoding": b"snappy"},
            {b"grpc-status": b"12", b"grpc-accept-encoding": b"identity,deflate,gzip"},
        ),
        (EMPTY, {b"grpc-timeout": b"1x"}, {b"grpc-status": b"3"}),
        (EMPTY, {b"x-bin": b"*"}, {b"grpc-status": b"3"}),
        (b"", {}, {b"grpc-status": b"12"}),
        (EMPTY * 2, {}, {b"grpc-status": b"12"}),
        (EMPTY + b"\0", {}, {b"grpc-status": b"13"}),
        (b"\0\0\0\0\x05abc", {}, {b"grpc-status": b"13"}),
        (b"\x01\0\0\0\0", {}, {b"grpc-status": b"13"}),
        (b"\x02\0\0\0\0", {}, {b"grpc-status": b"13"}),
        (b"\x01\0\0\0\x03abc", {b"grpc-encoding": b"gzip"}, {b"grpc-status": b"13"}),
        (
            b"\x01\0\0\0\x08" + zlib.compress(b""),
            {b"grpc-encoding": b"deflate"},
            {b"grpc-status": b"0"},
        ),
        (b"\x01\0\0\0\x14" + gzip.compress(b"", mtime=0), {b"grpc-encoding": b"gzip"}, {b"grpc-status": b"0"}),
    ],
)
async def test_what_grpcio_would_not_say(
    running: Running, body: bytes, change: dict[bytes, bytes | None], expected: dict[bytes, bytes]
) -> None:
    found = await Raw()(running.port, PATH + "Echo", body, change)
    assert {name: found.get(name) for name in expected} == expected
