"""Inference requests from HTTP, with tensors as JSON or in the binary tensor data extension.

With the extension a body is JSON, as long as ``Inference-Header-Content-Length`` says, then the bytes of the tensors in
the order in which the JSON lists them; a tensor's length is its parameter ``binary_data_size``.

What is not recognised by its bytes, see :mod:`.recognition`, or wrong in any way, is read in full.
"""

from __future__ import annotations

from functools import lru_cache

from tiercel.core.errors import InvalidRequestError, TooLargeError
from tiercel.serving.requests import InferRequest, InputTensor
from tiercel.serving.rest.messages import HttpRequest
from tiercel.serving.rest.recognition import (
    at_id,
    id_text,
    read_contents,
    template_without_id,
)
from tiercel.serving.rest.template import AnswerFormat, InputTemplate, RequestTemplate, read_template
from tiercel.serving.rest.template_bytes import HEADER_LENGTH, Recognised
from tiercel.serving.tensors import Array, Buffer, decode_json, decode_raw

# Templates of requests with several tensors in binary that are remembered, and their size in bytes.
_REMEMBERED = 1024
_REMEMBERED_BYTES = 1024

# What was read of a request: its template, its contents and its id.
Read = tuple[RequestTemplate, list[InputTensor], str]


def decode_request(
    request: HttpRequest, found: Recognised | None, model: str, version: str, max_json_bytes: int
) -> tuple[InferRequest, AnswerFormat]:
    """An inference request from HTTP, and how its answer is wanted.

    Args:
        request: From HTTP.
        found: As :func:`~tiercel.serving.rest.recognition.recognise` said.
        model: Name of the model that is asked.
        version: The only version that will do, or empty.
        max_json_bytes: Largest JSON.

    Raises:
        InvalidRequestError: The body is malformed; names the field.
        TooLargeError: The JSON is over ``max_json_bytes``.
    """
    array = None if found is None else read_contents(found, request.body)
    if found is not None and array is not None:
        template, (given,), request_id = found[0], found[0].inputs, id_text(found[1])
        inputs = [InputTensor(given.name, given.data_type, array)]
    elif HEADER_LENGTH in request.head.headers:
        template, inputs, request_id = _from_binary(*_split(request), max_json_bytes)
    else:
        template, inputs, request_id = _in_full(request.body, memoryview(b""), max_json_bytes)
    decoded = InferRequest(
        model,
        version,
        inputs,
        template.outputs,
        template.timeout,
        template.priority,
        template.minimum_accuracy,
        template.classes,
        request.arrived,
        request_id,
        template if array is not None else None,
    )
    return decoded, template.answer.with_id(request_id)  # the template is shared by requests of many ids


def _split(request: HttpRequest) -> tuple[Buffer, memoryview]:
    """The JSON and the binary part of a body."""
    body = request.body
    text = request.head.headers[HEADER_LENGTH]
    if not text.isdigit() or len(text) > 18 or int(text) > len(body):
        raise InvalidRequestError(
            f"Inference-Header-Content-Length must be the length of the JSON, 0 to {len(body)} bytes here"
        )
    view = memoryview(body)
    length = int(text)
    return view[:length], view[length:]


def _from_binary(text: Buffer, binary: memoryview, max_json_bytes: int) -> Read:
    """A request in binary; its JSON is remembered where it holds no contents."""
    if len(text) <= min(_REMEMBERED_BYTES, max_json_bytes):
        before, has_id, after = at_id(bytes(text))
        template = _known_json(before, has_id, after)
        if template is not None:
            request_id = text[len(before) : len(text) - len(after)] if has_id else b""
            return template, _contents(template.inputs, binary), id_text(bytes(request_id)) or template.answer.id
    return _in_full(text, binary, max_json_bytes)


@lru_cache(_REMEMBERED)
def _known_json(before: bytes, has_id: bool, after: bytes) -> RequestTemplate | None:
    """The template that all of the JSON is, or None when there are contents too, or something is wrong."""
    template = template_without_id(before, has_id, after)
    if template is None or any(given.binary_size is None for given in template.inputs):
        return None
    return template


def _in_full(text: Buffer, binary: memoryview, max_json_bytes: int) -> Read:
    if len(text) > max_json_bytes:
        raise TooLargeError(
            f"the JSON has {len(text)} bytes, {max_json_bytes} are possible; send tensors as binary data instead"
        )
    template = read_template(text)
    return template, _contents(template.inputs, binary), template.answer.id


def _contents(inputs: tuple[InputTemplate, ...], binary: memoryview) -> list[InputTensor]:
    tensors: list[InputTensor] = []
    position = 0
    for given in inputs:
        array: Array
        size = given.binary_size
        if size is None:
            array = decode_json(given.name, given.data_type, given.shape, given.data)
        else:
            if size > len(binary) - position:
                raise InvalidRequestError(
                    f"input '{given.name}': binary_data_size must be 0 to {len(binary) - position}, "
                    "the bytes that are there"
                )
            array = decode_raw(given.name, given.data_type, given.shape, binary[position : position + size])
            position += size
        tensors.append(InputTensor(given.name, given.data_type, array))
    if position != len(binary):
        raise InvalidRequestError(f"{len(binary) - position} bytes of the body belong to no input")
    return tensors
