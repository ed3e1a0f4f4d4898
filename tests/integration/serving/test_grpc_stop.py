"""Calls that were sent before SIGTERM, on connections and streams of every age."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import numpy as np
import pytest

from testing import onnx_models
from testing.serving_process import ServingProcess, serving
from tiercel.inference import open_inference_grpc_pb2 as pb

SERVICE = "/inference.GRPCInferenceService/"
QUESTION = pb.ModelInferRequest(
    model_name="m",
    inputs=[pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[1, 4])],
    raw_input_contents=[np.zeros(4, np.float32).tobytes()],
)
TIMEOUT = 60.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServingProcess]:
    onnx_models.put(tmp_path / "models", "m", 1, onnx_models.plus(1.0))
    with serving(tmp_path / "models", tmp_path, {"drain_timeout": 60}) as server:
        yield server


def framed(message: pb.ModelInferRequest) -> bytes:
    data = message.SerializeToString()
    return b"\0" + len(data).to_bytes(4, "big") + data


class Caller:
    """A client whose octets are in the kernel as soon as a method returns."""

    def __init__(self, address: str, stack: contextlib.ExitStack) -> None:
        host, _, port = address.rpartition(":")
        self._socket = stack.enter_context(socket.create_connection((host, int(port)), timeout=TIMEOUT))
        self._http2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
        self._http2.initiate_connection()
        self.data: dict[int, bytes] = {}
        self.status: dict[int, bytes] = {}
        self._unread = b""

    def begin(self, method: str) -> int:
        """A call without messages so far; its stream."""
        stream: int = self._http2.get_next_available_stream_id()
        fields = {":method": "POST", ":scheme": "http", ":path": SERVICE + method, ":authority": "s"}
        fields["content-type"] = "application/grpc"
        self._http2.send_headers(stream, list(fields.items()))
        self._flush()
        return stream

    def say(self, stream: int, *, last: bool) -> None:
        """A message of a call."""
        self._http2.send_data(stream, framed(QUESTION), end_stream=last)
        self._flush()

    def receive(self) -> bool:
        """Take what comes next; whether the server goes on."""
        octets = self._socket.recv(65536)
        for event in self._http2.receive_data(self._without_goaway(octets)):
            if isinstance(event, h2.events.DataReceived):
                self.data[event.stream_id] = self.data.get(event.stream_id, b"") + event.data
            elif isinstance(event, h2.events.TrailersReceived | h2.events.ResponseReceived):
                status = dict(event.headers).get(b"grpc-status")
                if status is not None:
                    self.status[event.stream_id] = status
        self._flush()
        return bool(octets)

    def receive_all(self) -> None:
        """Take all until the server closes."""
        while self.receive():
            pass

    def _without_goaway(self, octets: bytes) -> bytes:
        """Whole frames, but for GOAWAY (7): to h2 that is the connection's end, and not its announcement."""
        self._unread += octets
        kept = b""
        while len(self._unread) >= 9:
            size = 9 + int.from_bytes(self._unread[:3], "big")
            if len(self._unread) < size:
                break
            frame, self._unread = self._unread[:size], self._unread[size:]
            if frame[3] != 7:
                kept += frame
        return kept

    def _flush(self) -> None:
        # The server may have gone by now; what it said before is still to be read.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(self._http2.data_to_send())


def test_calls_that_were_sent_before_sigterm_are_answered(server: ServingProcess) -> None:
    with contextlib.ExitStack() as stack:
        known = Caller(server.grpc, stack)
        first = known.begin("ModelInfer")
        known.say(first, last=True)
        while first not in known.status:
            assert known.receive()
        server.process.send_signal(signal.SIGSTOP)  # what is sent from here on stays in the kernel
        callers = [known] + [Caller(server.grpc, stack) for _ in range(20)]
        streams = []
        for caller in callers:
            streams.append(caller.begin("ModelInfer"))
            caller.say(streams[-1], last=True)
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGCONT)
        for caller in callers:
            caller.receive_all()
        assert [caller.status.get(stream) for caller, stream in zip(callers, streams, strict=True)] == [b"0"] * 21
    assert server.process.wait(TIMEOUT) == 0


def test_questions_of_a_stream_that_were_sent_before_sigterm_are_answered(server: ServingProcess) -> None:
    with contextlib.ExitStack() as stack:
        caller = Caller(server.grpc, stack)
        stream = caller.begin("ModelStreamInfer")
        caller.say(stream, last=False)
        while stream not in caller.data:
            assert caller.receive()
        one = len(caller.data[stream])
        server.process.send_signal(signal.SIGSTOP)
        for _ in range(5):
            caller.say(stream, last=False)
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGCONT)
        caller.receive_all()
        assert len(caller.data[stream]) == 6 * one
        assert caller.status[stream] == b"14", "UNAVAILABLE: the rest is for the server that follows"
    assert server.process.wait(TIMEOUT) == 0


def test_a_call_whose_message_has_begun_to_arrive_is_answered(server: ServingProcess) -> None:
    with contextlib.ExitStack() as stack:
        caller = Caller(server.grpc, stack)
        stream = caller.begin("ModelInfer")
        while not caller.receive():  # the server's settings: it has read the connection's beginning
            pass
        server.process.send_signal(signal.SIGTERM)
        assert caller.receive(), "it says that it leaves"
        caller.say(stream, last=True)
        caller.receive_all()
        assert caller.status[stream] == b"0"
    assert server.process.wait(TIMEOUT) == 0
