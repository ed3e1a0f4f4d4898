"""Requests recognised by the bytes around their contents, which a program that keeps asking sends again.

Recognising one takes a few comparisons of bytes, where reading it takes an object for each thing that it says (0.4 us
against 3 us for 64 numbers in JSON). Contents and id differ from request to request; what is around them is read once.
Only requests with one input in plain form are recognised; the others, and whatever is wrong, are for :mod:`.decoding`.
"""

from __future__ import annotations

import math
import re
import secrets
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import orjson

from tiercel.core.errors import TiercelError
from tiercel.serving.rest.json_numbers import read_numbers
from tiercel.serving.rest.template import RequestTemplate, read_template
from tiercel.serving.rest.template_bytes import (
    HEADER_LENGTH,
    BinaryBytes,
    IdBytes,
    JsonBytes,
    Recognised,
    TemplateBytes,
)

if TYPE_CHECKING:
    from tiercel.serving.rest.messages import HttpRequest
    from tiercel.serving.tensors import Array

# Templates that are remembered, and the size in bytes of each side of the contents: some megabytes in all.
_REMEMBERED = 1024
_REMEMBERED_BYTES = 1024
# Stand for the contents and the id where a template is read without them. Random, so that no caller can send them.
_CONTENTS = secrets.token_hex()
ID_HOLDER = secrets.token_hex().encode()
# An id that is not escaped, so that its bytes are what it is.
_ID = re.compile(rb'"id"\s{0,4}:\s{0,4}"([ !#-\[\]-~]+)"')
# The beginning of contents, up to the first number.
_BRACKETS = re.compile(rb'"data"\s{0,4}:\s{0,4}\[(?:\s{0,4}\[){0,8}')


def recognise(request: HttpRequest, max_json_bytes: int) -> Recognised | None:
    """What a request is, if it is of a template that was read before or can be; else None."""
    body, head, recent = request.body, request.head, request.recent
    if recent is not None and recent.template is not None and len(body) <= max_json_bytes:
        found = recent.template.find(head, body)
        if found is not None:
            return found
    known = _known_bytes(request, max_json_bytes)
    if known is None:
        return None
    if recent is not None:
        recent.template = known
    return known.find(head, body)


def read_contents(found: Recognised, body: bytes | bytearray) -> Array | None:
    """The contents of a request that was recognised; None where it has to be read in full."""
    template, _, begin, end = found
    (given,) = template.inputs
    if given.binary_size is not None:  # a slice of its own is aligned, whatever the length of the JSON
        return np.frombuffer(body[begin:end], given.data_type.dtype).reshape(given.shape)
    return read_numbers(given.data_type, given.shape, bytes(body[begin:end]))


def id_text(request_id: bytes) -> str:
    """The id of a request that was recognised."""
    text: str = orjson.loads(b'"%b"' % request_id)
    return text


def at_id(text: bytes) -> tuple[bytes, bool, bytes]:
    """JSON up to the request's id, whether there seems to be one, and what comes after it."""
    found = _ID.search(text)
    return (text, False, b"") if found is None else (text[: found.start(1)], True, text[found.end(1) :])


def template_without_id(before: bytes, has_id: bool, after: bytes) -> RequestTemplate | None:
    """What JSON says around an id, as :func:`at_id` has found it; None where it is malformed or that is not its id."""
    try:
        template = read_template(before + ID_HOLDER + after if has_id else before + after)
    except TiercelError:
        return None
    return template if not has_id or template.answer.id == ID_HOLDER.decode() else None


def _known_bytes(request: HttpRequest, max_json_bytes: int) -> TemplateBytes | None:
    body, announced = request.body, request.head.headers.get(HEADER_LENGTH)
    if announced is not None:
        size = int(announced) if announced.isdigit() and len(announced) < 6 else 0
        if not 0 < size <= min(_REMEMBERED_BYTES, max_json_bytes, len(body)):
            return None
        return _known_binary(*at_id(bytes(body[:size])))
    if len(body) > max_json_bytes:
        return None
    key = body.find(b'"data"', 0, _REMEMBERED_BYTES)
    opened = _BRACKETS.match(body, key) if key >= 0 else None
    if opened is None:
        return None
    begin = opened.end()
    end = body.find(b"]", begin) + 1
    if end <= 0 or len(body) - end > _REMEMBERED_BYTES:
        return None
    # Numbers of another row or input would make a template of their own each time, and push out those of others.
    has_rows = opened[0].count(b"[") > 1 and body[end : end + 8].lstrip().startswith(b",")
    if has_rows or body.find(b'"data"', end) >= 0:
        return None
    before, id_first, between = at_id(bytes(body[:begin]))
    after = bytes(body[end:])
    if id_first:
        return _known_json(before, between, after, True, False)
    between, id_last, rest = at_id(after)
    return _known_json(before, between, rest, False, True) if id_last else _known_json(before, b"", after, False, False)


@lru_cache(_REMEMBERED)
def _known_json(before: bytes, between: bytes, after: bytes, id_first: bool, id_last: bool) -> TemplateBytes | None:
    """The template of all requests with a list in the place of the contents, which is all the contents there are."""
    contents = b'"%b"' % _CONTENTS.encode()
    if id_last:
        template = template_without_id(before[:-1] + contents + between, True, after)
    elif id_first:
        template = template_without_id(before, True, between[:-1] + contents + after)
    else:
        template = template_without_id(before[:-1] + contents + after, False, b"")
    if template is None or len(template.inputs) != 1:
        return None
    (given,) = template.inputs
    data = given.data
    while isinstance(data, list) and len(data) == 1:  # the brackets of a nested list of one row
        (data,) = data
    if data != _CONTENTS or given.binary_size is not None:
        return None
    if id_first or id_last:
        return IdBytes(template, before, between, after, id_first)
    return JsonBytes(template, before, after, _fixed_id(template))


@lru_cache(_REMEMBERED)
def _known_binary(before: bytes, id_first: bool, between: bytes) -> TemplateBytes | None:
    """The template of all requests with this JSON and one tensor after it, which any bytes of its size are."""
    template = template_without_id(before, id_first, between)
    if template is None or len(template.inputs) != 1:
        return None
    (given,) = template.inputs
    size = math.prod(given.shape) * given.data_type.dtype.itemsize
    if not given.data_type.is_fixed or given.binary_size != size:
        return None
    if id_first:
        return IdBytes(template, before, between, b"", id_first, size)
    length, end = b"%d" % len(before), len(before) + size
    return BinaryBytes(before, length, end, (template, _fixed_id(template), len(before), end))


def _fixed_id(template: RequestTemplate) -> bytes:
    return orjson.dumps(template.answer.id)[1:-1]
