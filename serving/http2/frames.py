"""Frames of HTTP/2 (RFC 9113, sections 4, 6 and 7): numbers, and how the few kinds that a server sends are written."""

from __future__ import annotations

import struct
from collections.abc import Iterable

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# Length (24 bits) and type (8 bits) as one number, flags, stream.
HEAD = struct.Struct(">IBI")
HEAD_SIZE = HEAD.size
STREAM_MASK = 0x7FFFFFFF

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM = 0x1
ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20

SETTINGS_ENABLE_PUSH = 0x2
SETTINGS_MAX_CONCURRENT_STREAMS = 0x3
SETTINGS_INITIAL_WINDOW_SIZE = 0x4
SETTINGS_MAX_FRAME_SIZE = 0x5
SETTINGS_MAX_HEADER_LIST_SIZE = 0x6

NO_ERROR = 0x0
PROTOCOL_ERROR = 0x1
FLOW_CONTROL_ERROR = 0x3
STREAM_CLOSED = 0x5
FRAME_SIZE_ERROR = 0x6
REFUSED_STREAM = 0x7
CANCEL = 0x8
COMPRESSION_ERROR = 0x9
ENHANCE_YOUR_CALM = 0xB

MAX_FRAME_SIZE = 16384  # bytes; the default of SETTINGS_MAX_FRAME_SIZE, which this server does not change
MAX_WINDOW = 2**31 - 1
DEFAULT_WINDOW = 65535
LAST_STREAM = 2**31 - 1

_NUMBER = struct.Struct(">I")
_TWO_NUMBERS = struct.Struct(">II")
_SETTING = struct.Struct(">HI")


class ConnectionFailedError(Exception):
    """The peer broke the protocol in a way that ends the connection."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame."""
    return HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def settings(values: Iterable[tuple[int, int]]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*value) for value in values))


def read_settings(payload: bytes) -> list[tuple[int, int]]:
    """Identifiers and values of a SETTINGS frame, whose length must fit."""
    return list(_SETTING.iter_unpack(payload))


def rst_stream(stream: int, code: int) -> bytes:
    """A RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream, _NUMBER.pack(code))


def window_update(stream: int, increment: int) -> bytes:
    """A WINDOW_UPDATE frame; stream 0 is the connection."""
    return frame(WINDOW_UPDATE, 0, stream, _NUMBER.pack(increment))


def goaway(last_stream: int, code: int, message: str = "") -> bytes:
    """A GOAWAY frame."""
    return frame(GOAWAY, 0, 0, _TWO_NUMBERS.pack(last_stream, code) + message.encode())


def read_number(payload: bytes) -> int:
    """The number that a RST_STREAM or WINDOW_UPDATE frame carries, or the first of a setting's."""
    return int(_NUMBER.unpack_from(payload)[0])


def without_padding(flags: int, payload: bytes) -> bytes:
    """The payload of a DATA or HEADERS frame.

    Raises:
        ConnectionFailedError: The padding is as long as the frame.
    """
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionFailedError(PROTOCOL_ERROR, "a frame's padding is as long as the frame")
    return payload[1 : len(payload) - payload[0]]


def expect(condition: bool, code: int, message: str) -> None:
    """Go on with a connection only if something holds.

    Raises:
        ConnectionFailedError: It does not.
    """
    if not condition:
        raise ConnectionFailedError(code, message)


def check_unused(kind: int, number: int, payload: bytes) -> int:
    """Check a PRIORITY, GOAWAY or PUSH_PROMISE, whose contents a server has no use for.

    Returns:
        With which error its stream is to be reset; :data:`NO_ERROR` for none.

    Raises:
        ConnectionFailedError: It may not be sent, or not so.
    """
    expect(kind != PUSH_PROMISE, PROTOCOL_ERROR, "a client cannot push")
    if kind == GOAWAY:
        expect(number == 0, PROTOCOL_ERROR, "GOAWAY is on a stream")
        expect(len(payload) >= 8, FRAME_SIZE_ERROR, "GOAWAY is too short")
        return NO_ERROR
    expect(number > 0, PROTOCOL_ERROR, "PRIORITY is on stream 0")
    return NO_ERROR if len(payload) == 5 else FRAME_SIZE_ERROR
