from __future__ import annotations

import gzip
import zlib

import pytest

from tiercel.core.errors import (
    CapacityExceededError,
    InvalidRequestError,
    TiercelError,
    TooLargeError,
)
from tiercel.serving.rest.compression import Inflater
from tiercel.serving.rest.head import Head
from tiercel.serving.rest.messages import ByteBudget, HttpRefusedError, HttpRequest

BODY = b"hello " * 100


def packed(encoding: bytes, body: bytes) -> HttpRequest:
    return HttpRequest(Head(b"POST", b"/", {b"content-encoding": encoding, b"a": b"b"}), body, len(body))


def gz(body: bytes) -> bytes:
    """Without the time, which would name the tests of one process otherwise than those of the next."""
    return gzip.compress(body, mtime=0)


def bare(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        (b"gzip", gz(BODY)),
        (b"X-GZIP", gz(BODY)),
        (b"deflate", zlib.compress(BODY)),
        (b"deflate", bare(BODY)),
        (b"gzip", gz(b"")),
    ],
)
async def test_what_is_unpacked_is_accounted_for(encoding: bytes, data: bytes) -> None:
    budget = ByteBudget(10**6)
    budget.reserve(len(data))
    request = packed(encoding, data)
    await Inflater(1000, budget).inflate(request)
    assert request.body == (BODY if request.body else b"")
    assert dict(request.headers) == {b"a": b"b"}
    assert budget.used == request.reserved == len(data) + len(request.body)


@pytest.mark.parametrize(
    ("encoding", "data", "error"),
    [
        (b"br", b"x", HttpRefusedError),
        (b"gzip, gzip", gz(gz(BODY)), HttpRefusedError),
        (b"gzip", b"", InvalidRequestError),
        (b"gzip", b"nonsense", InvalidRequestError),
        (b"deflate", b"", InvalidRequestError),
        (b"gzip", gz(BODY)[:-1], InvalidRequestError),
        (b"gzip", gz(BODY) + b"more", InvalidRequestError),
        (b"gzip", gz(BODY) * 2, InvalidRequestError),
        (b"gzip", gz(b"a" * 1001), TooLargeError),
        (b"deflate", zlib.compress(b"\0" * 10**7), TooLargeError),
        (b"deflate", bare(b"\0" * 10**7), TooLargeError),
    ],
)
async def test_what_cannot_be_unpacked_holds_nothing(encoding: bytes, data: bytes, error: type[TiercelError]) -> None:
    budget = ByteBudget(10**6)
    with pytest.raises(error):
        await Inflater(1000, budget).inflate(packed(encoding, data))
    assert budget.used == 0


async def test_unpacking_waits_for_room() -> None:
    with pytest.raises(CapacityExceededError):
        await Inflater(1000, ByteBudget(999)).inflate(packed(b"gzip", gz(BODY)))
