"""Requests bent out of shape: structured mutations whose answer is known, and blind ones whose answer is not. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

Blind = Callable[[random.Random, bytes], bytes]

FRAGMENTS = (
    b"", b"\0", b"\r\n", b"\r\n\r\n", b" ", b"\t", b":", b",", b"[", b"]", b"{", b"}", b'"', b"\\", b"\\u0000", b"null",
    b"true", b"-1", b"-0", b"0", b"1e999", b"1e-999", b"18446744073709551616", b"9223372036854775807", b"4294967295",
    b"NaN", b"Infinity", b"\xff\xfe", b"\xed\xa0\x80", b"%00", b"%2e%2e/", b"../", b"[" * 300, b'{"a":' * 100,
    b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"HTTP/1.0", b"HTTP/2.0",
    b"Inference-Header-Content-Length: 7\r\n", b"Content-Encoding: gzip\r\n", b"Connection: close\r\n",
    b"Upgrade: h2c\r\n",
    b"GET", b"PUT", b"BOOL", b"BYTES", b"INT64", b"FP16", b"shape", b"data", b"binary_data_size", b"parameters",
    b"classification", b"timeout", b"priority", b"\x00\x00\x00\x00\x00", b"\x7f\xff\xff\xff",
)  # fmt: skip
"""What parsers stumble over."""


@dataclass(frozen=True, slots=True)
class Case:
    """A request and what may come of it."""

    wire: bytes  # octets on the connection
    # Statuses one of which has to come; empty when any refusal, answer or silence will do.
    statuses: frozenset[int] = frozenset()
    # A good request that is answered on the same connection first, so that the server expects more like it.
    before: bytes = b""


def flip(source: random.Random, data: bytes) -> bytes:
    """One octet becomes another."""
    if not data:
        return data
    place = source.randrange(len(data))
    return data[:place] + bytes((source.randrange(256),)) + data[place + 1 :]


def insert(source: random.Random, data: bytes) -> bytes:
    """A fragment that parsers stumble over, anywhere."""
    place = source.randrange(len(data) + 1)
    return data[:place] + source.choice(FRAGMENTS) + data[place:]


def cut(source: random.Random, data: bytes) -> bytes:
    """The end is missing."""
    return data[: source.randrange(len(data) + 1)]


def remove(source: random.Random, data: bytes) -> bytes:
    """A piece is missing."""
    begin = source.randrange(len(data) + 1)
    return data[:begin] + data[begin + source.randrange(16) :]


def repeat(source: random.Random, data: bytes) -> bytes:
    """A piece comes twice."""
    begin = source.randrange(len(data) + 1)
    piece = data[begin : begin + source.randrange(64)]
    return data[:begin] + piece + data[begin:]


def replace_number(source: random.Random, data: bytes) -> bytes:
    """A run of digits becomes another number."""
    place = source.randrange(len(data) + 1)
    begin = next((index for index in range(place, len(data)) if 48 <= data[index] <= 57), -1)
    if begin < 0:
        return data
    end = begin
    while end < len(data) and 48 <= data[end] <= 57:
        end += 1
    return data[:begin] + source.choice(_NUMBERS) + data[end:]


_NUMBERS = (
    b"0",
    b"1",
    b"2",
    b"-1",
    b"65",
    b"256",
    b"65536",
    b"4294967296",
    b"18446744073709551615",
    b"1.5",
    b"1e400",
    b"",
)
_BLIND: tuple[Blind, ...] = (flip, insert, cut, remove, repeat, replace_number)


def bent(source: random.Random, data: bytes) -> bytes:
    """One to three blind mutations, one after the other."""
    for _ in range(source.choice((1, 1, 1, 2, 3))):
        data = source.choice(_BLIND)(source, data)
    return data
