from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from testing.until import until
from tiercel.serving.connections.listening import Connections
from tiercel.serving.rest.connection import HttpConnection
from tiercel.serving.rest.messages import ByteBudget, HttpRequest, HttpResponse, Respond
from tiercel.serving.rest.receiver import HttpLimits
from tiercel.serving.routing.calls import Cancellable

GET = b"GET %b HTTP/1.1\r\nHost: h\r\n\r\n"


class Work:
    """What is being done for a caller."""

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()

    def cancel(self) -> None:
        self.cancelled.set()


class Site:
    """Connections on a real socket; requests for /later wait until they are let go, /work can be dropped."""

    def __init__(self, **limits: Any) -> None:
        defaults = {"header_bytes": 4096, "body_bytes": 1_000_000, "connections": 10}
        timeouts = {"idle_timeout": 30.0, "read_timeout": 30.0}
        self.limits = HttpLimits(**(defaults | timeouts | limits))
        self.budget = ByteBudget(2_000_000)
        self.connections: Connections[HttpConnection] = Connections()
        self.later: list[tuple[HttpRequest, Respond]] = []
        self.asked = asyncio.Event()
        self.seen: list[bytes] = []
        self.work: list[Work] = []

    def handle(self, request: HttpRequest, respond: Respond) -> Cancellable | None:
        self.seen.append(request.target)
        if request.target.startswith(b"/work"):
            self.work.append(Work())
            self.asked.set()
            return self.work[-1]
        if request.target.startswith(b"/later"):
            self.later.append((request, respond))
            self.asked.set()
        else:
            respond(HttpResponse(200, request.target + b" " + bytes(request.body)))
        return None

    def let_go(self) -> None:
        request, respond = self.later.pop(0)
        self.asked.clear()
        respond(HttpResponse(200, b"late " + request.target))

    def make(self) -> HttpConnection:
        return HttpConnection(self.handle, self.limits, self.budget, self.connections)


class Caller:
    """A client that sees every byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *data: bytes) -> None:
        for part in data:
            self.writer.write(part)

    async def answer(self) -> tuple[int, bytes, bytes]:
        """Status, head and body of the next answer."""
        async with asyncio.timeout(90):
            head = await self.reader.readuntil(b"\r\n\r\n")
            status = int(head.split(b" ")[1])
            length = 0
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            return status, head, await self.reader.readexactly(length)

    async def rest(self) -> bytes:
        """Everything until the server closes."""
        async with asyncio.timeout(90):
            return await self.reader.read()


Open = Callable[..., Any]


async def until_one(site: Site) -> list[HttpConnection]:
    """The site's only connection, as soon as there is one."""
    await until(lambda: len(site.connections) == 1)
    return list(site.connections)


@pytest.fixture
async def open_site() -> AsyncIterator[Open]:
    """Makes a site and a way to call it."""
    opened: list[tuple[Site, asyncio.Server]] = []
    callers: list[Caller] = []

    async def make(**limits: Any) -> tuple[Site, Callable[[], Any]]:
        site = Site(**limits)
        server = await asyncio.get_running_loop().create_server(site.make, "127.0.0.1", 0)
        opened.append((site, server))
        port = server.sockets[0].getsockname()[1]

        async def call() -> Caller:
            callers.append(Caller(*await asyncio.open_connection("127.0.0.1", port, limit=2**22)))
            return callers[-1]

        return site, call

    yield make
    for caller in callers:
        caller.writer.close()
    for site, server in opened:
        server.close()
        for connection in tuple(site.connections):
            connection.abort()
        async with asyncio.timeout(90):
            await site.connections.wait_empty()


async def test_keep_alive_and_pipelining_in_order(open_site: Open) -> None:
    site, call = await open_site()
    caller = await call()
    caller.send(GET % b"/1" + GET % b"/later/2" + GET % b"/3")
    assert (await caller.answer())[2] == b"/1 "
    await site.asked.wait()
    assert site.seen == [b"/1", b"/later/2"]  # /3 waits for its turn
    site.let_go()
    assert (await caller.answer())[2] == b"late /later/2"
    assert (await caller.answer())[2] == b"/3 "
    caller.send(GET % b"/4")
    assert (await caller.answer())[2] == b"/4 "


async def test_a_thousand_pipelined_requests(open_site: Open) -> None:
    _, call = await open_site()
    caller = await call()
    caller.send(b"".join(GET % b"/%d" % number for number in range(1000)))
    for number in range(1000):
        assert (await caller.answer())[2] == b"/%d " % number


async def test_connection_close_is_obeyed(open_site: Open) -> None:
    _, call = await open_site()
    caller = await call()
    caller.send(b"GET /1 HTTP/1.1\r\nConnection: close\r\n\r\n" + GET % b"/2")
    status, head, _ = await caller.answer()
    assert status == 200
    assert b"Connection: close\r\n" in head
    assert await caller.rest() == b""


async def test_http_10_keep_alive_is_confirmed(open_site: Open) -> None:
    _, call = await open_site()
    caller = await call()
    caller.send(b"GET /1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert b"Connection: keep-alive\r\n" in (await caller.answer())[1]


async def test_continue_comes_when_it_is_the_requests_turn(open_site: Open) -> None:
    site, call = await open_site()
    caller = await call()
    head = b"POST /b HTTP/1.1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    caller.send(GET % b"/later" + head)
    await site.asked.wait()
    site.let_go()
    assert (await caller.answer())[2] == b"late /later"
    assert (await caller.answer())[0] == 100
    caller.send(b"abc")
    assert (await caller.answer())[2] == b"/b abc"


async def test_a_body_that_is_announced_too_large_is_refused_before_it_is_sent(open_site: Open) -> None:
    _, call = await open_site(body_bytes=10)
    caller = await call()
    caller.send(b"POST /b HTTP/1.1\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n")
    status, head, body = await caller.answer()
    assert status == 413
    assert b"Connection: close" in head
    assert b"over 10 bytes" in body


async def test_the_refusal_reaches_a_caller_that_goes_on_sending(open_site: Open) -> None:
    _, call = await open_site(body_bytes=10)
    caller = await call()
    caller.send(b"POST /b HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n", b"a" * 1_000_000)
    assert (await caller.answer())[0] == 413
    assert await caller.rest() == b""


async def test_malformed_requests_are_answered_after_what_came_before(open_site: Open) -> None:
    site, call = await open_site()
    caller = await call()
    caller.send(GET % b"/later" + b"rubbish\r\n\r\n")
    await site.asked.wait()
    site.let_go()
    assert (await caller.answer())[2] == b"late /later"
    status, _, body = await caller.answer()
    assert status == 400
    assert b"well-formed" in body
    assert await caller.rest() == b""


async def test_an_unfinished_request_is_timed_out_and_an_idle_connection_closed(open_site: Open) -> None:
    _, call = await open_site(idle_timeout=0.2, read_timeout=0.05)
    idle, slow_head, slow_body = await call(), await call(), await call()
    slow_head.send(b"GET / HTTP/1.1\r\nHo")
    slow_body.send(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\na")
    assert (await slow_head.answer())[0] == 408
    assert (await slow_body.answer())[0] == 408
    assert await idle.rest() == b""


async def test_a_request_that_takes_long_to_answer_is_not_an_idle_connection(open_site: Open) -> None:
    site, call = await open_site(idle_timeout=0.02)
    caller = await call()
    caller.send(GET % b"/later")
    await site.asked.wait()
    closed = asyncio.ensure_future(caller.rest())
    done, _ = await asyncio.wait([closed], timeout=0.2)
    assert not done
    site.let_go()
    assert (await closed).endswith(b"late /later")


async def test_a_caller_that_sends_no_more_still_gets_its_answer(open_site: Open) -> None:
    site, call = await open_site()
    caller = await call()
    caller.send(GET % b"/later")
    caller.writer.write_eof()
    await site.asked.wait()
    site.let_go()
    assert (await caller.answer())[2] == b"late /later"
    assert await caller.rest() == b""


async def test_a_caller_that_leaves_breaks_nothing(open_site: Open) -> None:
    site, call = await open_site()
    caller = await call()
    caller.send(
        b"POST /later HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc" + b"POST /b HTTP/1.1\r\nContent-Length: 5\r\n\r\na"
    )
    await site.asked.wait()
    assert site.budget.used > 0
    caller.writer.transport.abort()
    await until(lambda: site.budget.used == 3)  # the request that was arriving is forgotten
    site.let_go()
    async with asyncio.timeout(90):
        await site.connections.wait_empty()
    assert site.budget.used == 0
    other = await call()
    other.send(GET % b"/1")
    assert (await other.answer())[0] == 200


async def test_one_connection_too_many_is_told_so_where_all_are_in_use(open_site: Open) -> None:
    site, call = await open_site(connections=1)
    first = await call()
    first.send(GET % b"/later")
    await asyncio.wait_for(site.asked.wait(), 90)
    second = await call()
    status, head, _ = await second.answer()
    assert (status, b"Retry-After: 1" in head) == (503, True)
    assert await second.rest() == b""
    site.let_go()
    assert (await first.answer())[0] == 200
    first.writer.close()
    second.writer.close()
    async with asyncio.timeout(90):
        await site.connections.wait_empty()
    third = await call()
    third.send(GET % b"/3")
    assert (await third.answer())[0] == 200


async def test_requests_that_wait_when_their_connection_is_lost_give_their_bytes_back(open_site: Open) -> None:
    site, call = await open_site()
    caller = await call()
    caller.send(GET % b"/later" + b"POST /b HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcde" * 3)
    await asyncio.wait_for(site.asked.wait(), 90)
    await until(lambda: site.budget.used == 15)
    for connection in tuple(site.connections):
        connection.abort()
    async with asyncio.timeout(90):
        await site.connections.wait_empty()
    assert site.budget.used == 0
    site.let_go()
    assert site.seen == [b"/later"]


async def test_idle_connections_keep_nobody_out(open_site: Open) -> None:
    site, call = await open_site(connections=10)
    busy = await call()
    busy.send(GET % b"/later")
    await asyncio.wait_for(site.asked.wait(), 90)
    idle = []
    for number in range(30):
        idle.append(await call())
        idle[-1].send(GET % b"/%d" % number)
        assert (await idle[-1].answer())[0] == 200
    assert len(site.connections) <= 10
    assert await idle[0].rest() == b""  # the longest idle one is closed
    idle[-1].send(GET % b"/again")
    assert (await idle[-1].answer())[0] == 200
    site.let_go()
    assert (await busy.answer())[0] == 200


async def test_nothing_is_handled_for_a_caller_that_does_not_take_its_answers(open_site: Open) -> None:
    site, call = await open_site()
    caller = await call()
    caller.writer.transport.pause_reading()
    request = b"POST /b HTTP/1.1\r\nContent-Length: 500000\r\n\r\n" + b"a" * 500_000
    for _ in range(100):
        caller.send(request)
    (connection,) = await until_one(site)
    await until(lambda: not connection._writable and not connection._reading)
    assert len(site.seen) < 100
    caller.writer.transport.resume_reading()
    for _ in range(100):
        assert (await caller.answer())[0] == 200


async def test_draining_waits_for_a_request_that_has_begun_to_arrive(open_site: Open) -> None:
    site, call = await open_site()
    caller = await call()
    caller.send(b"POST /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nab")
    (connection,) = await until_one(site)
    await until(lambda: site.budget.used == 4)
    connection.drain()
    caller.send(b"cd")
    status, head, body = await caller.answer()
    assert (status, body) == (200, b"/1 abcd")
    assert b"connection: close" in head.lower()
    assert await caller.rest() == b""


async def test_draining_closes_idle_connections_and_lets_busy_ones_finish(open_site: Open) -> None:
    site, call = await open_site()
    idle, busy = await call(), await call()
    idle.send(GET % b"/1")
    await idle.answer()
    busy.send(GET % b"/later")
    await site.asked.wait()
    for connection in tuple(site.connections):
        connection.drain()
    assert await idle.rest() == b""
    site.let_go()
    status, head, _ = await busy.answer()
    assert (status, b"Connection: close" in head) == (200, True)
    assert await busy.rest() == b""


async def test_head_gets_the_length_and_no_body(open_site: Open) -> None:
    _, call = await open_site()
    caller = await call()
    caller.send(b"HEAD /1 HTTP/1.1\r\nHost: h\r\n\r\n" + b"GET /2 HTTP/1.1\r\nConnection: close\r\n\r\n")
    head, _, rest = (await caller.rest()).partition(b"\r\n\r\n")
    assert b"Content-Length: 3" in head
    assert rest.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("how", ["close", "abort", "write_eof"])
async def test_work_for_a_caller_that_hangs_up_is_dropped(open_site: Open, how: str) -> None:
    site, call = await open_site()
    caller = await call()
    caller.send(b"POST /work HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")
    await site.asked.wait()
    assert site.budget.used == 3
    getattr(caller.writer.transport, how)()
    async with asyncio.timeout(90):
        await site.work[0].cancelled.wait()
        await site.connections.wait_empty()
    assert site.budget.used == 0
