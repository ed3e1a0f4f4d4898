"""What servers may say: answers of HTTP/1.1 and frames of HTTP/2, checked to the octet. Pure."""

from __future__ import annotations

import re

import orjson

from benchmarks.fuzz.calls import DATA, END_STREAM, GOAWAY, HEADERS, RST_STREAM
from tiercel.serving.http2.hpack import Decoder

STATUSES = frozenset({200, 400, 403, 404, 405, 408, 411, 413, 414, 415, 417, 421, 422, 429, 431, 501, 503, 504, 505})
"""500 is not among them: it says that the server is at fault."""

MAX_FRAME = 16384
GRPC_FAULTS = frozenset({2, 15})
"""UNKNOWN and DATA_LOSS: no request may bring a server to that."""

_HEAD = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r\n]+\r\n((?:[!-9;-~]+: ?[^\r\n]*\r\n)*)\r\n")
_LENGTH = re.compile(rb"(?i)content-length: *(\d+)\r\n")


class MalformedAnswerError(Exception):
    """A server said something that it may not say."""


def http_statuses(octets: bytes, *, head_only: bool = False) -> list[int]:
    """Statuses of all answers on a connection.

    Args:
        octets: Everything that the server sent.
        head_only: The request's method is HEAD, whose answer has a length and no body.

    Raises:
        MalformedAnswerError: It is not a sequence of whole answers, or an error is not in the protocol's form.
    """
    statuses: list[int] = []
    position = 0
    while position < len(octets):
        found = _HEAD.match(octets, position)
        if found is None:
            raise MalformedAnswerError(f"not an answer: {octets[position : position + 200]!r}")
        status, position = int(found[1]), found.end()
        if status == 100:
            continue
        length = _LENGTH.search(found[2])
        if length is None:
            raise MalformedAnswerError(f"an answer without its length: {found[0][:200]!r}")
        size = 0 if head_only else int(length[1])
        if position + size > len(octets):
            raise MalformedAnswerError(f"an answer is cut off: {octets[-200:]!r}")
        _check(status, octets[position : position + size], head_only=head_only)
        position += size
        statuses.append(status)
    return statuses


def _check(status: int, body: bytes, *, head_only: bool) -> None:
    if status not in STATUSES:
        raise MalformedAnswerError(f"status {status}: {body[:200]!r}")
    if status == 200 or head_only:
        return
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError:
        content = None
    known = isinstance(content, dict) and (isinstance(content.get("error"), str) or status == 400)
    if not known:
        raise MalformedAnswerError(f"status {status} without the protocol's form: {body[:200]!r}")


def grpc_statuses(octets: bytes) -> list[int]:
    """The ``grpc-status`` of all calls that were answered; -1 for a stream or connection that was broken off.

    Raises:
        MalformedAnswerError: It is not a sequence of whole frames, or a server may not send them.
    """
    decoder = Decoder(65536)
    statuses: list[int] = []
    position, left = 0, False
    while position < len(octets):
        if len(octets) - position < 9:
            raise MalformedAnswerError("a frame's head is cut off")
        size = int.from_bytes(octets[position : position + 3], "big")
        kind, flags = octets[position + 3], octets[position + 4]
        payload = octets[position + 9 : position + 9 + size]
        position += 9 + size
        if size > MAX_FRAME or len(payload) < size or kind > 9:
            raise MalformedAnswerError(f"a frame of kind {kind} with {size} octets, {len(payload)} of them there")
        if kind in {HEADERS, DATA} and left and not flags & END_STREAM:
            continue
        if kind == HEADERS:
            statuses += _grpc_status(decoder, payload)
        elif kind in {RST_STREAM, GOAWAY}:
            left = left or kind == GOAWAY
            statuses.append(-1)
    return statuses


def _grpc_status(decoder: Decoder, block: bytes) -> list[int]:
    fields = dict(decoder.decode(block).fields)
    code = fields.get(b"grpc-status")
    if code is None:
        return []
    if int(code) in GRPC_FAULTS:
        raise MalformedAnswerError(f"grpc-status {code!r}: {fields.get(b'grpc-message')!r}")
    return [int(code)]
