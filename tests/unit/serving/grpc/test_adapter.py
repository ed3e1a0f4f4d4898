from __future__ import annotations

import gc
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest

from testing.http2_peers import HEADERS, parse
from tiercel.core.errors import DeadlineExceededError, TiercelError
from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.serving.dataplane import DataPlane
from tiercel.serving.grpc.adapter import SERVICE, InferenceServicer
from tiercel.serving.grpc.server.server import GrpcConnection, GrpcLimits, Listener
from tiercel.serving.http2 import frames, hpack
from tiercel.serving.http2.streams import Http2Limits
from tiercel.serving.operators import Operators
from tiercel.serving.requests import InferRequest, InferResult, OutputTensor
from tiercel.serving.rest.messages import ByteBudget
from tiercel.serving.tensors import BY_NAME, TensorSpec

LIMITS = GrpcLimits(Http2Limits(4096, 10, 100_000, 60.0, 10.0), 1 << 20, 10, 10)
GRPC = b"application/grpc"
ANSWER = InferResult("m", "1", [OutputTensor(TensorSpec("y", BY_NAME["FP32"], (1,)), np.zeros(1, np.float32))])


@dataclass
class Pending:
    """What the data plane gives for a request that waits."""

    cancelled: int = 0

    def cancel(self) -> None:
        self.cancelled += 1


@dataclass
class Plane:
    """A data plane that lets requests wait."""

    asked: list[tuple[InferRequest, Callable[[InferResult | TiercelError], None]]] = field(default_factory=list)
    pending: Pending = field(default_factory=Pending)

    def submit(self, request: InferRequest, on_answer: Callable[[InferResult | TiercelError], None]) -> Pending:
        self.asked.append((request, on_answer))
        return self.pending


@dataclass
class Wire:
    """The transport of a connection: what was written to it."""

    written: bytes = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, _: str) -> None:
        return None

    def take(self) -> list[tuple[int, int, int, bytes]]:
        written, self.written = self.written, b""
        return parse(written)


class Asked:
    """A connection on which one inference was asked."""

    def __init__(self, timeout: bytes = b"", method: str = "ModelInfer", *, ended: bool = True) -> None:
        self.plane, self.wire = Plane(), Wire()
        plane = cast("DataPlane", self.plane)
        nothing = cast("Any", None)
        servicer = InferenceServicer(plane, nothing, _no_tasks, nothing, nothing, Operators())
        listener = Listener(servicer.methods(), LIMITS, ByteBudget(1000), lambda: 100.0)
        self.connection = GrpcConnection(listener)
        self.connection.connection_made(cast("Any", self.wire))
        self.connection.data_received(frames.PREFACE + frames.settings([]))
        self.wire.take()
        fields = [*HEADERS, (b"content-type", GRPC)]
        fields[2] = (b":path", f"/{SERVICE}/{method}".encode())
        block = hpack.encode([*fields, (b"grpc-timeout", timeout)] if timeout else fields)
        message = pb.ModelInferRequest(model_name="m").SerializeToString()
        self.connection.data_received(
            frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block)
            + frames.frame(frames.DATA, ended, 1, b"\0" + len(message).to_bytes(4, "big") + message)
        )


def _no_tasks(work: Coroutine[Any, Any, None], name: str) -> object:
    raise AssertionError(name)


@pytest.mark.parametrize("result", [ANSWER, DeadlineExceededError("late")])
async def test_an_answer_is_written_when_it_comes(result: InferResult | TiercelError) -> None:
    asked = Asked()
    ((request, on_answer),) = asked.plane.asked
    assert (request.model, request.timeout, request.arrived) == ("m", None, 100.0)
    assert asked.wire.take() == []
    on_answer(result)
    sent = asked.wire.take()
    assert sent[-1][1] & frames.END_STREAM
    status = dict(hpack.Decoder(4096).decode(sent[-1][3]).fields)[b"grpc-status"]
    assert status == (b"4" if isinstance(result, TiercelError) else b"0")
    assert asked.plane.pending.cancelled == 0


async def test_what_waits_on_a_stream_of_inferences_is_cancelled_with_it() -> None:
    asked = Asked(method="ModelStreamInfer", ended=False)
    message = b"\0\0\0\0\0"
    asked.connection.data_received(frames.frame(frames.DATA, 0, 1, message * 2))
    assert len(asked.plane.asked) == 3
    asked.plane.asked[0][1](ANSWER)
    asked.connection.data_received(frames.frame(frames.DATA, 0, 1, b"\xff\0\0\0\0"))  # breaks the call
    assert asked.plane.pending.cancelled == 2
    asked.plane.asked[1][1](ANSWER)
    assert asked.connection._http2.streams == {}


async def test_a_stream_of_inferences_ends_when_all_are_answered() -> None:
    asked = Asked(method="ModelStreamInfer", ended=False)
    asked.connection.data_received(frames.frame(frames.DATA, frames.END_STREAM, 1, b"\0\0\0\0\0"))
    (_, first), (_, second) = asked.plane.asked
    second(DeadlineExceededError("late"))
    assert asked.connection._http2.streams
    first(ANSWER)
    assert asked.connection._http2.streams == {}
    assert asked.plane.pending.cancelled == 0


async def test_a_stream_may_go_on_for_ever_with_the_frames_that_clients_send_for_each_answer() -> None:
    asked = Asked(method="ModelStreamInfer", ended=False)
    for _ in range(1000):
        asked.plane.asked.pop()[1](ANSWER)
        asked.connection.data_received(
            frames.window_update(0, 1000)
            + frames.window_update(1, 1000)
            + frames.frame(frames.PING, 0, 0, bytes(8))
            + frames.frame(frames.DATA, 0, 1, b"\0\0\0\0\0")
        )
    assert frames.GOAWAY not in {kind for kind, *_ in asked.wire.take()}


async def test_an_error_on_a_stream_of_inferences_has_the_id_of_its_request() -> None:
    asked = Asked(method="ModelStreamInfer", ended=False)
    wrong = pb.ModelInferRequest(model_name="m", id="seven")
    wrong.inputs.add(name="x", datatype="FP33")
    message = wrong.SerializeToString()
    asked.connection.data_received(frames.frame(frames.DATA, 0, 1, b"\0" + len(message).to_bytes(4, "big") + message))
    (answer,) = (content for kind, _, _, content in asked.wire.take() if kind == frames.DATA)
    response = pb.ModelStreamInferResponse.FromString(answer[5:])
    assert "FP33" in response.error_message
    assert response.infer_response.id == "seven"


async def test_the_callers_deadline_is_the_requests() -> None:
    assert Asked(timeout=b"250m").plane.asked[0][0].timeout == pytest.approx(0.25)


async def test_a_call_leaves_nothing_to_the_garbage_collector() -> None:
    asked = Asked()
    block = hpack.encode([*HEADERS[:2], (b":path", f"/{SERVICE}/ModelInfer".encode()), (b"content-type", GRPC)])
    gc.collect()
    gc.disable()
    try:
        for number in range(3, 103, 2):
            asked.plane.asked.clear()
            asked.connection.data_received(
                frames.frame(frames.HEADERS, frames.END_HEADERS, number, block)
                + frames.frame(frames.DATA, frames.END_STREAM, number, b"\0\0\0\0\0")
            )
            asked.plane.asked[0][1](ANSWER)
        asked.plane.asked.clear()
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("lost", [True, False])
async def test_what_nobody_waits_for_any_more_is_cancelled_once(lost: bool) -> None:
    asked = Asked()
    if lost:
        asked.connection.connection_lost(None)
    else:
        asked.connection.data_received(frames.rst_stream(1, frames.CANCEL))
    assert asked.plane.pending.cancelled == 1
    asked.plane.asked[0][1](ANSWER)  # came all the same
    assert asked.wire.take() == []
    asked.connection.connection_lost(None)
    assert asked.plane.pending.cancelled == 1
