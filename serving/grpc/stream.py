"""Triton's ModelStreamInfer: many inferences on one stream, each answered when it is done, errors as answers."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial

from tiercel.core.errors import TiercelError
from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.serving.access.gate import Gate
from tiercel.serving.dataplane import DataPlane
from tiercel.serving.dispatch import call as batching
from tiercel.serving.grpc.server.calls import Call, Method
from tiercel.serving.grpc.server.wire import Status
from tiercel.serving.grpc.templates import GrpcRequest, RequestReader, write_answer
from tiercel.serving.requests import InferResult

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Stream:
    """What is open on one stream."""

    waiting: int = 0  # requests that are not answered yet
    pending: dict[int, batching.Call] = field(default_factory=dict)  # those that may be cancelled, by number
    number: int = 0  # of the last request
    end: tuple[Status, str] | None = None  # how it ends once all are answered; None while more may come


@dataclass(frozen=True, slots=True)
class _Refused:
    """A request that makes no sense, and its id."""

    error: TiercelError
    id: str


class StreamedInference:
    """Answers the requests of streams."""

    def __init__(self, plane: DataPlane, reader: RequestReader, gate: Gate) -> None:
        self._gate = gate
        self._plane = plane
        self._reader = reader
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
            call.send(_error(received.error, received.id))
            return
        try:
            self._gate.check(call.caller, received.request.model, call.head.authorization)
        except TiercelError as error:
            call.send(_error(error, "" if received.message is None else received.message.id))
            return
        stream = self._streams.get(call)
        if stream is None:
            stream = self._open(call)
        stream.waiting += 1
        stream.number += 1
        number = stream.number
        pending = self._plane.submit(received.request, partial(self._answered, call, number, received))
        if pending is not None:
            stream.pending[number] = pending

    def _open(self, call: Call) -> _Stream:
        stream = self._streams[call] = _Stream()
        call.on_cancel = partial(self._cancel, call)
        call.on_leave = partial(self._end, call, Status.UNAVAILABLE, "the server leaves")
        call.set_time_limit()
        return stream

    def _answered(self, call: Call, number: int, received: GrpcRequest, result: InferResult | TiercelError) -> None:
        stream = self._streams.get(call)
        if stream is None:
            return
        stream.waiting -= 1
        stream.pending.pop(number, None)
        try:
            call.send(_answer(result, received))
        except Exception:  # the border: one answer's defect must not reach the executor
            _logger.exception("An answer could not be written")
            self._cancel(call)
            call.finish(Status.INTERNAL, "the server failed; its log says more")
            return
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
        for pending in tuple(stream.pending.values()) if stream is not None else ():
            pending.cancel()


def _answer(result: InferResult | TiercelError, received: GrpcRequest) -> bytes:
    if isinstance(result, TiercelError):
        return _error(result, "" if received.message is None else received.message.id)
    answer = pb.ModelInferResponse.FromString(write_answer(result, received))
    return pb.ModelStreamInferResponse(infer_response=answer).SerializeToString()


def _error(error: TiercelError, request_id: str) -> bytes:
    response = pb.ModelStreamInferResponse(error_message=error.message)
    response.infer_response.id = request_id
    return response.SerializeToString()
