"""gRPC's own layer on HTTP/2: prefixes of messages, statuses, timeouts and metadata.

Source: "gRPC over HTTP2" (PROTOCOL-HTTP2.md) and "Statuses and their use" of the gRPC project.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
import urllib.parse
import zlib
from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache

from tiercel.serving.http2 import hpack
from tiercel.serving.http2.hpack import Field

PREFIX = struct.Struct(">BI")
IDENTITY = b"identity"
ENCODINGS = frozenset({IDENTITY, b"deflate", b"gzip"})
"""In which messages of requests may come."""

Metadata = dict[str, str | bytes]

_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_ZLIB_OR_GZIP = 32 + zlib.MAX_WBITS
_MAX_MESSAGE = 1000  # characters of a status message, so that it fits a frame however it is encoded
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


class Status(IntEnum):
    """Status codes of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class CallError(Exception):
    """A call ends with this status."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


_CONTENT_TYPE: Field = (b"content-type", b"application/grpc")
HEAD = hpack.encode([(b":status", b"200"), _CONTENT_TYPE])
OK_TRAILERS = hpack.encode([(b"grpc-status", b"0")])


def message_frame(message: bytes) -> bytes:
    """A message with its prefix, not compressed."""
    return PREFIX.pack(0, len(message)) + message


@lru_cache(maxsize=256)
def trailers(status: Status, message: str, details: bytes = b"") -> bytes:
    """The header block that ends a call whose answer has begun."""
    return hpack.encode(_status_fields(status, message, details))


@lru_cache(maxsize=256)
def trailers_only(status: Status, message: str, details: bytes = b"") -> bytes:
    """The header block that is the whole answer of a call that failed."""
    fields = [(b":status", b"200"), _CONTENT_TYPE, *_status_fields(status, message, details)]
    if status is Status.UNIMPLEMENTED:
        fields.append((b"grpc-accept-encoding", b"identity,deflate,gzip"))
    return hpack.encode(fields)


def http_error(status: int) -> bytes:
    """The header block that answers what is not a gRPC call at all."""
    return hpack.encode([(b":status", str(status).encode())])


def retry_details(status: Status, message: str, seconds: int) -> bytes:
    """A ``google.rpc.Status`` with a ``RetryInfo``: after how many seconds the same call is let through."""
    delay = _field(1, _field(1, seconds))
    info = _field(1, b"type.googleapis.com/google.rpc.RetryInfo") + _field(2, delay)
    return _field(1, int(status)) + _field(2, message.encode()) + _field(3, info)


def _field(number: int, value: int | bytes) -> bytes:
    """A field of a protocol buffer: a number, or text, bytes and messages."""
    if isinstance(value, int):
        return bytes((number << 3,)) + _varint(value)
    return bytes((number << 3 | 2,)) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def _status_fields(status: Status, message: str, details: bytes) -> list[Field]:
    if len(message) > _MAX_MESSAGE:
        message = message[: _MAX_MESSAGE - 1] + "…"
    fields: list[Field] = [(b"grpc-status", str(int(status)).encode())]
    if message:
        encoded = urllib.parse.quote(message, safe=_PRINTABLE, errors="replace")
        fields.append((b"grpc-message", encoded.strip().encode()))
    if details:
        fields.append((b"grpc-status-details-bin", base64.b64encode(details).rstrip(b"=")))
    return fields


def is_grpc(content_type: bytes) -> bool:
    """Whether a content type is gRPC's with protocol buffers."""
    kind = content_type.partition(b";")[0].strip().lower()
    return kind in {b"application/grpc", b"application/grpc+proto"}


def read_timeout(value: bytes) -> float:
    """The seconds that ``grpc-timeout`` says.

    Raises:
        CallError: It is malformed.
    """
    found = _TIMEOUT.fullmatch(value)
    if found is None:
        raise CallError(Status.INVALID_ARGUMENT, "grpc-timeout must be up to 8 digits and one of H, M, S, m, u, n")
    return int(found[1]) * _UNITS[found[2]]


def read_metadata(fields: Iterable[Field]) -> Metadata:
    """What the caller sent along: text by name, or bytes where the name ends in ``-bin``; the last of equal names wins.

    Raises:
        CallError: Bytes are not in base64.
    """
    metadata: Metadata = {}
    for name, value in fields:
        text = name.decode("ascii")
        if not text.endswith("-bin"):
            metadata[text] = value.decode("latin-1")
            continue
        last = value.rpartition(b",")[2].strip()
        try:
            metadata[text] = base64.b64decode(last + b"=" * (-len(last) % 4), validate=True)
        except binascii.Error as error:
            raise CallError(Status.INVALID_ARGUMENT, f"metadata {text} is not base64: {error}") from error
    return metadata


def decompress(data: bytes, limit: int) -> bytes:
    """A message that was compressed with gzip, or with deflate in zlib's form; it says itself which.

    Raises:
        CallError: It is neither, or over ``limit`` bytes.
    """
    decompressor = zlib.decompressobj(wbits=_ZLIB_OR_GZIP)
    try:
        message = decompressor.decompress(data, limit + 1)
    except zlib.error as error:
        raise CallError(Status.INTERNAL, f"the message is not compressed as it says: {error}") from error
    if len(message) > limit:
        raise too_large(limit)
    if not decompressor.eof or decompressor.unused_data:
        raise CallError(Status.INTERNAL, "the message is not one whole compressed stream")
    return message


def too_large(limit: int) -> CallError:
    """The error for a message over the limit."""
    return CallError(Status.RESOURCE_EXHAUSTED, f"the message is over {limit} bytes; send less at a time")
