"""The encrypted layer brings the same bytes both ways as the event loop's own TLS."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testing.tls_door import LOOPS, Ends, Heard, make_ends, open_door
from tiercel.serving.connections.listening import open_listener

SIZES = st.lists(st.one_of(st.integers(0, 300), st.integers(16_000, 17_000), st.integers(0, 200_000)), max_size=6)
ends = lru_cache(1)(make_ends)


def parts_of(sizes: list[int], first: int) -> list[bytes]:
    """Parts of these sizes, which tell where they stand."""
    numbers = itertools.cycle(range(first, 251))
    return [bytes(itertools.islice(numbers, size)) for size in sizes]


def answering(asked: int, answers: list[bytes]) -> Callable[[], Heard]:
    """Answers once it has heard all, and closes."""
    heard: Heard

    def answer(transport: asyncio.Transport, data: bytes) -> None:
        del data
        if len(heard.received) == asked:
            for part in answers:
                transport.write(part)
            transport.close()

    heard = Heard(answer)
    return lambda: heard


async def talk(context: Ends, port: int, requests: list[bytes]) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context.caller)
    for part in requests:
        writer.write(part)
        await writer.drain()
    found = await reader.read(-1)
    writer.close()
    return found


async def both(requests: list[bytes], answers: list[bytes]) -> None:
    asked = sum(map(len, requests))
    found = []
    async with asyncio.timeout(30):
        async with open_door(ends()) as door:
            door.make = answering(asked, answers)
            found.append((await talk(ends(), door.port, requests), bytes(door.guests[0].received)))
        make = answering(asked, answers)
        listening = open_listener("127.0.0.1", 0)
        port = listening.getsockname()[1]
        server = await asyncio.get_running_loop().create_server(make, sock=listening, ssl=ends().server)
        answer = await talk(ends(), port, requests)
        server.close()
        found.append((answer, bytes(make().received)))
    assert found[0] == found[1]
    assert found[0] == (b"".join(answers), b"".join(requests))


@pytest.mark.parametrize("loop", LOOPS, ids=["asyncio", "uvloop"])
@given(requests=SIZES, answers=SIZES)
@settings(max_examples=15, deadline=None)
def test_bytes_are_those_of_the_loops_own_tls(
    loop: Callable[[], asyncio.AbstractEventLoop], requests: list[int], answers: list[int]
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(both([b"?", *parts_of(requests, 0)], parts_of(answers, 3)))
