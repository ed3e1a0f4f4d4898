"""Inference over gRPC in its usual form, recognised by its bytes instead of taken apart.

A caller's requests differ in the tensor that they bring and in nothing else, and that tensor, as raw contents, is the
last field of the message. So what stands before it is read once: a request that begins with the same bytes and has
the same length means the same. Answers are put together in the same way. Whatever has another form goes through
:mod:`tiercel.serving.grpc.codec`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import lru_cache

from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.serving.grpc.codec import decode_request, encode_result, set_parameter
from tiercel.serving.requests import InferRequest, InferResult, InputTensor, ParameterValue
from tiercel.serving.tensors import DataType, decode_raw, encode_raw

_REMEMBERED = 1024
_REMEMBERED_SIZE = 1024  # bytes before the tensor
_RAW_INPUT = 7
_RAW_OUTPUT_TAG = b"\x32"
_STREAM_ANSWER_TAG = b"\x12"
_VARINT, _LENGTH_DELIMITED = 0, 2


@dataclass(frozen=True, slots=True)
class _Template:
    """A request without its tensor."""

    input_name: str
    data_type: DataType
    shape: tuple[int, ...]
    request: InferRequest


@dataclass(slots=True)
class GrpcRequest:
    """An inference request."""

    request: InferRequest  # for the data plane
    # As it came, where that decides how the answer looks; None where the request was raw and had no id.
    message: pb.ModelInferRequest | None
    data: bytes  # its bytes, as another node is asked


class RequestReader:
    """Reads inference requests, and remembers the templates they have."""

    def __init__(self) -> None:
        self._starts: dict[int, int] = {}
        self._templates: dict[bytes, _Template] = {}

    def read(self, data: bytes) -> GrpcRequest:
        """A request from the bytes of a ``ModelInferRequest``.

        Raises:
            InvalidRequestError: A field is malformed; it is named.
            DecodeError: It is no such message.
        """
        start = self._starts.get(len(data))
        if start is not None:
            template = self._templates.get(data[:start])
            if template is not None:
                return GrpcRequest(_filled(template, memoryview(data)[start:]), None, data)
        message = pb.ModelInferRequest.FromString(data)
        request = decode_request(message)
        self._remember(data, message, request)
        return GrpcRequest(request, message, data)

    def _remember(self, data: bytes, message: pb.ModelInferRequest, request: InferRequest) -> None:
        if message.id or len(message.inputs) != 1 or len(message.raw_input_contents) != 1:
            return
        start = last_field_start(data, _RAW_INPUT)
        if start is None or start > _REMEMBERED_SIZE:
            return
        if len(self._templates) >= _REMEMBERED or len(self._starts) >= _REMEMBERED:
            self._templates.clear()
            self._starts.clear()
        (tensor,) = request.inputs
        # The length is in the bytes before the tensor, so equal bytes need the same length to mean the same.
        self._starts[len(data)] = start
        self._templates[data[:start]] = _Template(
            tensor.name, tensor.data_type, tensor.array.shape, dataclasses.replace(request, inputs=[])
        )


def _filled(template: _Template, data: memoryview) -> InferRequest:
    array = decode_raw(template.input_name, template.data_type, template.shape, data)
    known = template.request
    return InferRequest(
        known.model,
        known.version,
        [InputTensor(template.input_name, template.data_type, array)],
        list(known.outputs),
        known.timeout,
        known.priority,
        known.minimum_accuracy,
        known.classes,
    )


def last_field_start(data: bytes, number: int) -> int | None:
    """Where the contents of a message's last field begin, if it is field ``number`` and has a length; else None."""
    position, found = 0, None
    while position < len(data):
        tag, position = _read_varint(data, position)
        found = None
        if tag & 7 == _VARINT:
            _, position = _read_varint(data, position)
        elif tag & 7 == _LENGTH_DELIMITED:
            length, position = _read_varint(data, position)
            if tag >> 3 == number:
                found = position
            position += length
        else:
            return None
    return found


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A number, and the position after it; of bytes that were parsed before, so that it is whole."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def write_answer(result: InferResult, received: GrpcRequest) -> bytes:
    """The bytes of the ``ModelInferResponse`` that answers a request."""
    if received.message is None:
        if len(result.outputs) == 1:
            (output,) = result.outputs
            spec, array = output.spec, output.array
            data = encode_raw(array)
            said = tuple(result.parameters.items()) if result.parameters else ()
            what = (spec.name, spec.data_type.name, array.shape)
            return _before_data(result.model, result.version, said, *what, len(data)) + data
        return encode_result(result, _RAW).SerializeToString()
    return encode_result(result, received.message).SerializeToString()


def write_stream_answer(answer: bytes) -> bytes:
    """The bytes of the ``ModelStreamInferResponse`` with the bytes of a ``ModelInferResponse``, which are not read."""
    return _STREAM_ANSWER_TAG + _varint(len(answer)) + answer


_RAW = pb.ModelInferRequest(raw_input_contents=[b""])


@lru_cache(_REMEMBERED)
def _before_data(
    model: str,
    version: str,
    parameters: tuple[tuple[str, ParameterValue], ...],
    name: str,
    data_type: str,
    shape: tuple[int, ...],
    size: int,
) -> bytes:
    """An answer with one raw output, up to its contents."""
    message = pb.ModelInferResponse(model_name=model, model_version=version)
    for key, value in parameters:
        set_parameter(message.parameters[key], value)
    message.outputs.add(name=name, datatype=data_type, shape=shape)
    return message.SerializeToString() + _RAW_OUTPUT_TAG + _varint(size)
