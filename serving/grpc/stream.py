"""Triton's ModelStreamInfer: many inferences on one stream, each answered when it is done, errors as answers.

What generates answers a request several times (decoupled).

Each request goes the way of a ModelInfer: who may ask, and which node answers, is decided there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tiercel.core.errors import TiercelError
from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.serving.grpc.server.calls import Call, InnerCall, Method
from tiercel.serving.grpc.server.wire import Status
from tiercel.serving.grpc.templates import GrpcRequest, RequestReader, write_stream_answer


class _StreamedRequest(InnerCall):
    """One request of a stream: its answer is one of the stream's."""

    __slots__ = ("_id", "_on_answer", "stream")

    def __init__(self, stream: Call, request_id: str, on_answer: Callable[[_StreamedRequest, bytes], None]) -> None:
        super().__init__(stream.head, stream.caller, stream.arrived)
        self.stream = stream
        self._id = request_id
        self._on_answer = on_answer

    def remaining(self) -> float | None:
        """See :meth:`Call.remaining`."""
        return self.stream.remaining()

    def send(self, message: bytes) -> None:
        """See :meth:`Call.send`; others may follow, and the last one is the answer."""
        if not self.is_done:
            self.stream.send(write_stream_answer(message))

    def answer(self, message: bytes) -> None:
        """See :meth:`Call.answer`."""
        if not self.is_done:
            self._finish()
            self._on_answer(self, write_stream_answer(message))

    def finish(self, status: Status = Status.OK, message: str = "", details: bytes = b"") -> None:
        """See :meth:`Call.finish`; the stream goes on."""
        del details  # there is no place for them
        if not self.is_done:
            self._finish(f"{status.name}: {message}")
            self._on_answer(self, _error(message, self._id))


@dataclass(slots=True)
class _Stream:
    """What is open on one stream."""

    waiting: set[_StreamedRequest] = field(default_factory=set)  # requests that are not answered yet
    end: tuple[Status, str] | None = None  # how it ends once all are answered; None while more may come


@dataclass(frozen=True, slots=True)
class _Refused:
    """A request that makes no sense, and its id."""

    error: TiercelError
    id: str


class StreamedInference:
    """Answers the requests of streams.

    Args:
        reader: Reads them.
        infer: Answers one as a call by itself, here or by another node.
    """

    def __init__(self, reader: RequestReader, infer: Callable[[GrpcRequest, Call], None]) -> None:
        self._reader = reader
        self._infer = infer
        self._streams: dict[Call, _Stream] = {}

    def method(self) -> Method:
        """As the server calls it."""
        return Method(pb.ModelInferRequest, self._handle, self._read, streaming=True, on_end=self._end)

    def _read(self, data: bytes) -> GrpcRequest | _Refused:
        try:
            return self._reader.read(data)
        except TiercelError as error:
            return _Refused(error, pb.ModelInferRequest.FromString(data).id)

    def _handle(self, received: GrpcRequest | _Refused, call: Call) -> None:
        if isinstance(received, _Refused):
            call.send(_error(received.error.message, received.id))
            return
        stream = self._streams.get(call) or self._open(call)
        asked = _StreamedRequest(call, "" if received.message is None else received.message.id, self._answered)
        stream.waiting.add(asked)
        self._infer(received, asked)

    def _open(self, call: Call) -> _Stream:
        stream = self._streams[call] = _Stream()
        call.on_cancel = partial(self._cancel, call)
        call.on_leave = partial(self._end, call, Status.UNAVAILABLE, "the server leaves")
        call.set_time_limit()
        return stream

    def _answered(self, asked: _StreamedRequest, answer: bytes) -> None:
        call = asked.stream
        stream = self._streams.get(call)
        if stream is None:
            return
        stream.waiting.discard(asked)
        call.send(answer)
        self._finish_if_done(call, stream)

    def _end(self, call: Call, status: Status = Status.OK, message: str = "") -> None:
        stream = self._streams.get(call) or self._open(call)
        stream.end = (status, message)
        self._finish_if_done(call, stream)

    def _finish_if_done(self, call: Call, stream: _Stream) -> None:
        if stream.end is not None and not stream.waiting:
            self._streams.pop(call, None)
            call.finish(*stream.end)

    def _cancel(self, call: Call) -> None:
        stream = self._streams.pop(call, None)
        for asked in tuple(stream.waiting) if stream is not None else ():
            asked.cancel()


def _error(message: str, request_id: str) -> bytes:
    response = pb.ModelStreamInferResponse(error_message=message)
    response.infer_response.id = request_id
    return response.SerializeToString()
