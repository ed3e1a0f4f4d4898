from __future__ import annotations

import asyncio
import gzip
import random
import zlib
from collections.abc import AsyncIterator

import pytest

from tiercel.serving.rest.messages import HttpResponse, HttpStream
from tiercel.serving.rest.packing import PackedAnswer, coding_for
from tiercel.serving.tasks import StartTask


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        (b"gzip", b"gzip"),
        (b"deflate", b"deflate"),
        (b"GZip, deflate, br", b"gzip"),
        (b"gzip;q=0.5, deflate;q=0.8", b"deflate"),
        (b" deflate ; q=1.0 ", b"deflate"),
        (b"gzip;q=0", None),
        (b"gzip;q=0, deflate;q=0.1", b"deflate"),
        (b"identity, gzip;q=0.5", None),
        (b"identity;q=0.5, gzip", b"gzip"),
        (b"gzip;q=much", None),
        (b"br", None),
        (b"*", None),
        (b"", None),
        (b",;=,", None),
    ],
)
def test_how_an_answer_is_packed_by_what_is_accepted(accepted: bytes, coding: bytes | None) -> None:
    assert coding_for(accepted) == coding


@pytest.fixture
async def start() -> AsyncIterator[StartTask]:
    async with asyncio.TaskGroup() as group:
        yield lambda work, name: group.create_task(work, name=name)


class Work:
    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


async def sent(start: StartTask, body: bytes, coding: bytes = b"gzip") -> HttpResponse:
    answer: asyncio.Future[HttpResponse | HttpStream | bytes] = asyncio.get_running_loop().create_future()
    PackedAnswer(answer.set_result, coding, start).respond(HttpResponse(200, body, headers=b"A: b\r\n"))
    async with asyncio.timeout(90):
        response = await answer
    assert isinstance(response, HttpResponse)
    return response


async def test_what_is_packed_says_so(start: StartTask) -> None:
    body = b"0.125," * 10_000
    for coding, unpack in ((b"gzip", gzip.decompress), (b"deflate", zlib.decompress)):
        response = await sent(start, body, coding)
        assert unpack(response.body) == body
        assert response.headers == b"A: b\r\nContent-Encoding: %b\r\nVary: Accept-Encoding\r\n" % coding


@pytest.mark.parametrize(
    "body", [b"", b"a" * 1000, random.Random(1).randbytes(100_000)], ids=["empty", "small", "random"]
)
async def test_what_is_small_or_gets_no_smaller_is_sent_as_it_is(start: StartTask, body: bytes) -> None:
    response = await sent(start, body)
    assert (response.body, response.headers) == (body, b"A: b\r\n")


async def test_nobody_is_answered_who_went_away_meanwhile() -> None:
    answers: list[HttpResponse | HttpStream | bytes] = []
    work = Work()
    async with asyncio.TaskGroup() as group:
        packed = PackedAnswer(answers.append, b"gzip", lambda work, name: group.create_task(work, name=name))
        what_to_cancel = packed.instead_of(work)
        packed.respond(HttpResponse(200, b"a" * 100_000))
        what_to_cancel.cancel()
    assert work.cancelled
    assert not answers


async def test_what_comes_in_parts_is_sent_as_it_comes(start: StartTask) -> None:
    answers: list[HttpResponse | HttpStream | bytes] = []
    stream = HttpStream(b"text/event-stream")
    PackedAnswer(answers.append, b"gzip", start).respond(stream)
    assert answers == [stream]
