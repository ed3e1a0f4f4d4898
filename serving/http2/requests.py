"""What decoded header fields mean as a request, and whether they are well-formed (RFC 9113, section 8)."""

from __future__ import annotations

import re

from tiercel.serving.http2.hpack import Field, HeaderBlock

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_BAD_VALUE = re.compile(rb"[\0\r\n]|\A[ \t]|[ \t]\Z")
_FORBIDDEN = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
_PSEUDO = frozenset({b":method", b":scheme", b":path", b":authority"})


class MalformedError(ValueError):
    """The header fields are not a request; its stream is reset."""


class Request:
    """The head of a request; many streams may share one, so it is not changed after it was read.

    Attributes:
        method: HTTP method.
        path: Path and query.
        fields: All other fields, without the pseudo header fields.
        content_length: Bytes of the body if the caller said it, else -1.
        too_large: The fields were over the limit, and nothing else is known of the request.
        meaning: For the application, which may keep here what the fields mean to it.
    """

    __slots__ = ("content_length", "fields", "meaning", "method", "path", "too_large")

    def __init__(self, method: bytes, path: bytes, fields: tuple[Field, ...], content_length: int) -> None:
        self.method = method
        self.path = path
        self.fields = fields
        self.content_length = content_length
        self.too_large = False
        self.meaning: object = None


def request_of(block: HeaderBlock) -> Request:
    """The request that a block begins.

    Raises:
        MalformedError: It is none.
    """
    found = block.request
    if isinstance(found, Request):
        return found
    if block.too_large:
        request = Request(b"", b"", (), -1)
        request.too_large = True
    else:
        request = _read(block.fields)
    block.request = request
    return request


def check_trailers(block: HeaderBlock) -> None:
    """Raises :class:`MalformedError` if the block cannot end a request."""
    for name, value in block.fields:
        _check(name, value)


def _read(fields: tuple[Field, ...]) -> Request:
    pseudo: dict[bytes, bytes] = {}
    regular = [field for field in fields if not field[0].startswith(b":")]
    for name, value in fields[: len(fields) - len(regular)]:
        if name not in _PSEUDO or name in pseudo or _BAD_VALUE.search(value):
            raise MalformedError("pseudo header fields are unknown, repeated, misplaced or malformed")
        pseudo[name] = value
    for name, value in regular:
        _check(name, value)
    method, path = pseudo.get(b":method"), pseudo.get(b":path")
    if not method or not path or not pseudo.get(b":scheme"):
        raise MalformedError("a request needs :method, :scheme and :path")
    return Request(method, path, tuple(regular), _content_length(regular))


def _check(name: bytes, value: bytes) -> None:
    if not _NAME.fullmatch(name) or _BAD_VALUE.search(value):
        raise MalformedError("a header field's name or value has bytes that it must not have")
    if name in _FORBIDDEN or (name == b"te" and value != b"trailers"):
        raise MalformedError("a header field is of HTTP/1.1's connections")


def _content_length(fields: list[Field]) -> int:
    values = {value for name, value in fields if name == b"content-length"}
    if not values:
        return -1
    value = values.pop()
    if values or not value.isdigit() or len(value) > 15:
        raise MalformedError("content-length is not one number")
    return int(value)
