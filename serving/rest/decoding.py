"""Inference requests from HTTP, with tensors as JSON or in the binary tensor data extension.

With the extension a body is JSON, as long as ``Inference-Header-Content-Length`` says, then the bytes of the tensors in
the order in which the JSON lists them; a tensor's length is its parameter ``binary_data_size``.

A program that keeps asking sends the same JSON around different contents. What is around them is read once and then
recognised by its bytes; what is not recognised, or wrong in any way, is read in full.
"""

from __future__ import annotations

import secrets
from functools import lru_cache

from tiercel.serving.dataplane import InferRequest, InputTensor
from tiercel.serving.errors import InvalidRequestError, ServingError, TooLargeError
from tiercel.serving.rest.encoding import AnswerForm
from tiercel.serving.rest.json_numbers import read_numbers
from tiercel.serving.rest.messages import HttpRequest
from tiercel.serving.rest.request_form import InputForm, RequestForm, read_form
from tiercel.serving.tensors import Array, Buffer, decode_json, decode_raw

_HEADER_LENGTH = b"inference-header-content-length"
# Forms that are remembered, and their size in bytes: some megabytes in all.
_REMEMBERED = 1024
_REMEMBERED_BYTES = 1024
# Stands for the contents where a form is read without them. Random, so that no caller can send it.
_CONTENTS = secrets.token_hex()


def decode_request(
    request: HttpRequest, model: str, version: str, max_json_bytes: int
) -> tuple[InferRequest, AnswerForm]:
    """An inference request from HTTP, and how its answer is wanted.

    Raises:
        InvalidRequestError: The body is malformed; names the field.
        TooLargeError: The JSON is over ``max_json_bytes``.
    """
    body = request.body
    if _HEADER_LENGTH in request.head.headers:
        text, binary = _split(request)
        form, inputs = _from_binary(text, binary, max_json_bytes)
    else:
        known = _from_known_json(body) if len(body) <= max_json_bytes else None
        form, inputs = known or _in_full(body, memoryview(b""), max_json_bytes)
    question = InferRequest(
        model,
        version,
        inputs,
        form.outputs,
        form.timeout,
        form.priority,
        form.minimum_accuracy,
        form.classes,
        request.arrived,
    )
    return question, form.answer


def _split(request: HttpRequest) -> tuple[Buffer, memoryview]:
    """The JSON and the binary part of a body."""
    body = request.body
    text = request.head.headers[_HEADER_LENGTH]
    if not text.isdigit() or len(text) > 18 or int(text) > len(body):
        raise InvalidRequestError(
            f"Inference-Header-Content-Length must be the length of the JSON, 0 to {len(body)} bytes here"
        )
    view = memoryview(body)
    length = int(text)
    return view[:length], view[length:]


def _from_known_json(body: bytes | bytearray) -> tuple[RequestForm, list[InputTensor]] | None:
    """A request whose only contents are one flat list, or None when it has to be read in full."""
    key = body.find(b'"data"', 0, _REMEMBERED_BYTES)
    begin = body.find(b"[", key, key + 16)
    end = body.find(b"]", begin) + 1
    if key < 0 or begin < 0 or end <= 0 or len(body) - end > _REMEMBERED_BYTES:
        return None
    form = _known_around(bytes(body[:begin]), bytes(body[end:]))
    if form is None:
        return None
    (given,) = form.inputs
    array = read_numbers(given.data_type, given.shape, bytes(body[begin:end]))
    return None if array is None else (form, [InputTensor(given.name, given.data_type, array)])


@lru_cache(_REMEMBERED)
def _known_around(before: bytes, after: bytes) -> RequestForm | None:
    """The form of all requests that have one JSON value between ``before`` and ``after``, if it is their contents.

    JSON has no context: whatever value stands there, it ends up where this one does.
    """
    try:
        form = read_form(b'%b"%b"%b' % (before, _CONTENTS.encode(), after))
    except ServingError:
        return None
    if len(form.inputs) != 1 or form.inputs[0].data != _CONTENTS or form.inputs[0].binary_size is not None:
        return None
    return form


def _from_binary(text: Buffer, binary: memoryview, max_json_bytes: int) -> tuple[RequestForm, list[InputTensor]]:
    """A request in binary; its JSON is remembered where it holds no contents."""
    if len(text) <= min(_REMEMBERED_BYTES, max_json_bytes):
        form = _known_json(bytes(text))
        if form is not None:
            return form, _contents(form.inputs, binary)
    return _in_full(text, binary, max_json_bytes)


@lru_cache(_REMEMBERED)
def _known_json(text: bytes) -> RequestForm | None:
    """The form that is the whole of ``text``, or None when there are contents too, or something is wrong."""
    try:
        form = read_form(text)
    except ServingError:
        return None
    return form if all(given.binary_size is not None for given in form.inputs) else None


def _in_full(text: Buffer, binary: memoryview, max_json_bytes: int) -> tuple[RequestForm, list[InputTensor]]:
    if len(text) > max_json_bytes:
        raise TooLargeError(
            f"the JSON has {len(text)} bytes, {max_json_bytes} are possible; send tensors as binary data instead"
        )
    form = read_form(text)
    return form, _contents(form.inputs, binary)


def _contents(inputs: tuple[InputForm, ...], binary: memoryview) -> list[InputTensor]:
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
