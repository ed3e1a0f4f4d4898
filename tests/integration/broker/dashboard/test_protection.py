"""What pages of others, strangers and crowds may do to a broker's dashboard: nothing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testing.brokers import running_broker, tenant_of, tenant_token
from testing.browsers import API, browser_of
from testing.until import until
from tiercel.broker.dashboard import listener, stream
from tiercel.core.addresses import split_address


@contextlib.asynccontextmanager
async def connected(address: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which a test writes what it likes."""
    reader, writer = await asyncio.open_connection(*split_address(address))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "[::2]", ""])
async def test_a_name_that_is_not_ours_is_answered_by_nothing(tmp_path: Path, host: str) -> None:
    async with running_broker(tmp_path) as broker, browser_of(broker.addresses["dashboard"]) as browser:
        for path in ("/", "/assets/favicon.svg", f"{API}session"):
            answer = await browser.ask("GET", path, headers={"Host": host})
            assert answer.status == 421
        for ours in ("localhost:1", "127.0.0.1", "[::1]:99", "LOCALHOST."):  # as tunnels call it
            assert (await browser.ask("GET", f"{API}session", headers={"Host": ours})).status == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),  # another port of this machine
        ({"Sec-Fetch-Site": "cross-site", "Origin": "OWN"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "OWN"}, 404),
        ({"Origin": "OWN"}, 404),
        ({}, 404),  # a program
    ],
)
async def test_a_page_of_somebody_else_acts_for_nobody(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    async with running_broker(tmp_path) as broker, browser_of(broker.addresses["dashboard"]) as browser:
        await browser.sign_in(tenant_token(tmp_path))
        shown = {name: browser.url if value == "OWN" else value for name, value in headers.items()}
        assert (await browser.post("jobs/unknown/cancel", headers=shown)).status == status
        assert (await browser.get("jobs/unknown", headers=shown)).status == status
        answer = await browser.ask("GET", "/", headers=shown)  # a link to the page itself is one
        assert answer.status == 200
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    "path", ["/assets/../site.py", "/assets/%2e%2e/site.py", "/assets/..%2fsite.py", "/assets//etc/passwd", "/x.py"]
)
async def test_only_pages_are_pages(tmp_path: Path, path: str) -> None:
    async with running_broker(tmp_path) as broker, connected(broker.addresses["dashboard"]) as (reader, writer):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert b" 404 " in await reader.readline()


async def test_a_page_that_is_known_already_is_not_sent_again(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, browser_of(broker.addresses["dashboard"]) as browser:
        first = await browser.ask("GET", "/any/way/in")
        again = await browser.ask("GET", "/", headers={"If-None-Match": first.headers["ETag"]})
        assert (first.status, again.status, again.content) == (200, 304, "")


async def test_who_takes_too_long_or_sends_too_much_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "IDLE_SECONDS", 0.3)
    monkeypatch.setattr("tiercel.broker.dashboard.asked.BODY_SECONDS", 0.3)
    async with running_broker(tmp_path) as broker:
        post = b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\n"
        for sent, told in (
            (b"", b""),
            (b"GET / HTTP/1.1\r\nHost: local", b""),
            (post + b"Content-Length: 10\r\n\r\n{", b" 504 "),
            (
                b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n\r\n" + bytes(99_999),
                b" 413 ",
            ),
            (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 10_000 + b"\r\n\r\n", b" 400 "),
            (b"GET /" + b"x" * 10_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b" 400 "),
            (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 100 + b"\r\n", b" 400 "),
        ):
            async with connected(broker.addresses["dashboard"]) as (reader, writer):
                writer.write(sent)
                with contextlib.suppress(ConnectionError):
                    assert told in await asyncio.wait_for(reader.readline(), 30)
                    await asyncio.wait_for(reader.read(), 30)  # it is closed


async def test_of_a_stranger_no_large_body_is_taken_in(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, connected(broker.addresses["dashboard"]) as (reader, writer):
        ask = b"POST /api/v1/endpoints/digits/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n"
        writer.write(ask + bytes(1000))
        assert b" 401 " in await asyncio.wait_for(reader.readline(), 5)  # without the rest


async def test_a_crowd_has_its_places_and_keeps_no_other_door_shut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MOST_CONNECTIONS", 8)
    async with running_broker(tmp_path) as broker, contextlib.AsyncExitStack() as stack:
        address = broker.addresses["dashboard"]
        crowd = [await stack.enter_async_context(connected(address)) for _ in range(40)]
        closed = [asyncio.create_task(reader.read()) for reader, _ in crowd]
        await until(lambda: sum(task.done() for task in closed) == 32)
        async with tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice:
            assert await alice.nodes() == []
        for task in closed:
            task.cancel()
        await asyncio.gather(*closed, return_exceptions=True)
        for _, writer in crowd[:2]:
            writer.transport.abort()

        async def gets_in() -> bool:
            with contextlib.suppress(OSError):
                async with browser_of(address) as browser:
                    return (await browser.get("session")).status == 401
            return False

        async with asyncio.timeout(90):
            while not await gets_in():  # noqa: ASYNC110 - until the server has seen them go
                await asyncio.sleep(0.05)


async def test_a_browser_that_reads_too_slowly_is_cut_off_and_the_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tiercel.broker.dashboard.site.PIECE_SECONDS", 0.5)
    monkeypatch.setattr(stream, "ALIVE_SECONDS", 0.2)
    async with running_broker(tmp_path) as broker, browser_of(broker.addresses["dashboard"]) as quick:
        token = tenant_token(tmp_path)
        await quick.sign_in(token)
        host, port = split_address(broker.addresses["dashboard"])
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setblocking(False)
        with slow:
            await asyncio.get_running_loop().sock_connect(slow, (host, port))
            ask = f"GET {API}events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
            await asyncio.get_running_loop().sock_sendall(slow, ask.encode())
            assert broker.dashboard is not None
            publisher = broker.dashboard.publisher
            async with quick.session.get(f"{quick.url}{API}events") as told:
                await told.content.readline()
                await until(lambda: publisher.streams == 2)
                for _ in range(100):
                    publisher.tell("alice", "state", {"text": "x" * 100_000})
                    await told.content.readuntil(b"\n\n")
                await until(lambda: publisher.streams == 1)
                publisher.tell("alice", "state", {"text": "still here"})
                await told.content.readuntil(b"still here")
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_that_a_browser_goes_is_no_defect(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker(tmp_path) as broker, browser_of(broker.addresses["dashboard"]) as browser:
        await browser.sign_in(tenant_token(tmp_path))
        assert broker.dashboard is not None
        publisher = broker.dashboard.publisher
        for _ in range(10):
            async with browser.session.get(f"{browser.url}{API}events") as told:
                await told.content.readline()
                publisher.tell("alice", "state", {"text": "x" * 100_000})
            publisher.tell("alice", "state", {"text": "x" * 100_000})
        await until(lambda: publisher.streams == 0)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
