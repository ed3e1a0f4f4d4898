"""Inference requests from HTTP, with tensors as JSON or in the binary tensor data extension.

With the extension a body is JSON, as long as ``Inference-Header-Content-Length`` says, then the bytes of the tensors in
the order in which the JSON lists them; a tensor's length is its parameter ``binary_data_size``.

A program that keeps asking sends the same JSON around different contents. What is around them is read once and then
recognised by its bytes; what is not recognised, or wrong in any way, is read in full.
"""

from __future__ import annotations

import re
import secrets
from functools import lru_cache

from tiercel.serving.errors import InvalidRequestError, ServingError, TooLargeError
from tiercel.serving.requests import InferRequest, InputTensor
from tiercel.serving.rest.json_numbers import read_numbers
from tiercel.serving.rest.messages import HttpRequest
from tiercel.serving.rest.recent import HEADER_LENGTH, Recent
from tiercel.serving.rest.request_form import AnswerForm, InputForm, RequestForm, read_form
from tiercel.serving.tensors import Array, Buffer, decode_json, decode_raw

# Forms that are remembered, and their size in bytes: some megabytes in all.
_REMEMBERED = 1024
_REMEMBERED_BYTES = 1024
# Stands for the contents where a form is read without them. Random, so that no caller can send it.
_CONTENTS = secrets.token_hex()
_ID_HOLDER = secrets.token_hex().encode()
# An id that is not escaped, so that its bytes are what it is.
_ID = re.compile(rb'"id"\s{0,4}:\s{0,4}"([ !#-\[\]-~]+)"')

# What was read of a request: its form, its contents and its id.
Read = tuple[RequestForm, list[InputTensor], str]


def decode_request(
    request: HttpRequest, model: str, version: str, max_json_bytes: int
) -> tuple[InferRequest, AnswerForm]:
    """An inference request from HTTP, and how its answer is wanted.

    Raises:
        InvalidRequestError: The body is malformed; names the field.
        TooLargeError: The JSON is over ``max_json_bytes``.
    """
    body = request.body
    recent = request.recent
    if HEADER_LENGTH in request.head.headers:
        text, binary = _split(request)
        form, inputs, request_id = _from_binary(text, binary, max_json_bytes)
        if recent is not None:
            recent.remember_binary(form, request.head, text)
    else:
        known = _from_known_json(body, recent) if len(body) <= max_json_bytes else None
        form, inputs, request_id = known or _in_full(body, memoryview(b""), max_json_bytes)
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
        form if recent is not None and recent.knows(form) else None,
    )
    answer = form.answer
    if request_id != answer.id:  # the form is shared by requests of many ids
        answer = AnswerForm(request_id, answer.exceptions, answer.binary_by_default)
    return question, answer


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


def _from_known_json(body: bytes | bytearray, recent: Recent | None = None) -> Read | None:
    """A request whose only contents are one flat list, or None when it has to be read in full."""
    key = body.find(b'"data"', 0, _REMEMBERED_BYTES)
    begin = body.find(b"[", key, key + 16)
    end = body.find(b"]", begin) + 1
    if key < 0 or begin < 0 or end <= 0 or len(body) - end > _REMEMBERED_BYTES:
        return None
    before, after, request_id = _without_id(bytes(body[:begin]), bytes(body[end:]))
    form = _known_around(before, after, bool(request_id))
    if form is None:
        return None
    (given,) = form.inputs
    array = read_numbers(given.data_type, given.shape, bytes(body[begin:end]))
    if array is None:
        return None
    if recent is not None and not request_id:
        recent.remember_json(form, before, after)
    return form, [InputTensor(given.name, given.data_type, array)], request_id or form.answer.id


def _without_id(before: bytes, after: bytes) -> tuple[bytes, bytes, str]:
    """The same with a place holder for the request's id, which is another each time; and the id, empty for none."""
    found = _ID.search(before)
    if found is not None:
        return before[: found.start(1)] + _ID_HOLDER + before[found.end(1) :], after, found[1].decode("ascii")
    found = _ID.search(after)
    if found is not None:
        return before, after[: found.start(1)] + _ID_HOLDER + after[found.end(1) :], found[1].decode("ascii")
    return before, after, ""


@lru_cache(_REMEMBERED)
def _known_around(before: bytes, after: bytes, has_id: bool) -> RequestForm | None:
    """The form of all requests that have one JSON value between ``before`` and ``after``, if it is their contents.

    JSON has no context: whatever value stands there, or in the place of the id, it ends up where this one does.
    """
    try:
        form = read_form(b'%b"%b"%b' % (before, _CONTENTS.encode(), after))
    except ServingError:
        return None
    if len(form.inputs) != 1 or form.inputs[0].data != _CONTENTS or form.inputs[0].binary_size is not None:
        return None
    if has_id and form.answer.id != _ID_HOLDER.decode():
        return None
    return form


def _from_binary(text: Buffer, binary: memoryview, max_json_bytes: int) -> Read:
    """A request in binary; its JSON is remembered where it holds no contents."""
    if len(text) <= min(_REMEMBERED_BYTES, max_json_bytes):
        same, _, request_id = _without_id(bytes(text), b"")
        form = _known_json(same, bool(request_id))
        if form is not None:
            return form, _contents(form.inputs, binary), request_id or form.answer.id
    return _in_full(text, binary, max_json_bytes)


@lru_cache(_REMEMBERED)
def _known_json(text: bytes, has_id: bool) -> RequestForm | None:
    """The form that is the whole of ``text``, or None when there are contents too, or something is wrong."""
    try:
        form = read_form(text)
    except ServingError:
        return None
    if has_id and form.answer.id != _ID_HOLDER.decode():
        return None
    return form if all(given.binary_size is not None for given in form.inputs) else None


def _in_full(text: Buffer, binary: memoryview, max_json_bytes: int) -> Read:
    if len(text) > max_json_bytes:
        raise TooLargeError(
            f"the JSON has {len(text)} bytes, {max_json_bytes} are possible; send tensors as binary data instead"
        )
    form = read_form(text)
    return form, _contents(form.inputs, binary), form.answer.id


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
