"""A node from which nothing comes back is left for another copy, passed over, and asked again by nobody who waits."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from testing.routes import clear, write_routes
from tiercel.core.errors import UnavailableError
from tiercel.serving.routing.directory import Directory
from tiercel.serving.routing.pool import Credentials, PeerLimits
from tiercel.serving.routing.relay import Handing, Relay
from tiercel.serving.routing.silence import LEAST_PATIENCE_SECONDS

REQUEST = Handing("m", b"POST", b"/v2/models/m/infer", b"", b"{}")


class Copy:
    """A server of one model, which a test can make slow, or silent."""

    def __init__(self) -> None:
        self.address = ""
        self.seconds: float | None = 0.0
        """How long an answer takes; None for no answer at all, to whatever it is."""
        self.asked = 0
        self.tried = 0

    async def serve(self, stopped: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:

            async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                tasks.append(group.create_task(self._answer(reader, writer)))

            tasks: list[asyncio.Task[None]] = []
            server = await asyncio.start_server(answer, "127.0.0.1", 0)
            self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            await stopped.wait()
            server.close()
            for task in tasks:
                task.cancel()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"POST"):
                    await reader.readexactly(len(REQUEST.body))
                self.asked += head.startswith(b"POST")
                self.tried += head.startswith(b"GET")
                if self.seconds is None:
                    await asyncio.sleep(60)
                elif head.startswith(b"POST"):  # that a model is slow makes nothing else so
                    await asyncio.sleep(self.seconds)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


class Lab:
    """Two copies, and a relay that knows of them.

    Args:
        folder: For the table.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / "routes.json"
        self.a, self.b = Copy(), Copy()
        self.relay: Relay

    async def ask(self, seconds: float = 5.0, *, is_here: bool = False) -> float:
        """How long an answer took."""
        began = time.monotonic()
        answer = await self.relay.ask(REQUEST, asyncio.get_running_loop().time() + seconds, is_here=is_here)
        assert answer.status == 200
        return time.monotonic() - began

    @contextlib.asynccontextmanager
    async def knowing(self, *names: str, draining: str = "") -> AsyncIterator[None]:
        """A relay that knows of these, and asks the first where both would do."""
        addresses = {"a": self.a.address, "b": self.b.address}
        routes = tuple(clear(name, addresses[name], draining=name == draining) for name in names)
        write_routes(self.file, "near", {"m": routes})
        limits = PeerLimits(64, 2**20)
        self.relay = Relay(Directory(self.file), Credentials(None, None), limits, 2**20, draw=lambda _: 0)
        watching = asyncio.create_task(self.relay.watch())
        try:
            yield
        finally:
            self.relay.close()
            watching.cancel()
            await asyncio.wait([watching])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(90):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    lab, stopped = Lab(tmp_path), asyncio.Event()
    serving = [asyncio.create_task(each.serve(stopped)) for each in (lab.a, lab.b)]
    await until(lambda: bool(lab.a.address and lab.b.address))
    yield lab
    stopped.set()
    await asyncio.gather(*serving)


async def test_a_copy_that_falls_silent_costs_a_moment_once_and_is_asked_again_when_it_is_back(lab: Lab) -> None:
    async with lab.knowing("a", "b"):
        await lab.ask()
        assert lab.a.asked == 1
        lab.a.seconds = None
        # Those that are under way as it happens, on kept connections and on new ones.
        took = await asyncio.gather(*(lab.ask() for _ in range(8)))
        assert LEAST_PATIENCE_SECONDS <= max(took) < 3.0
        asked, repeated = lab.a.asked, lab.relay.outcomes["silent"]
        assert 1 <= repeated <= 8
        for _ in range(20):
            await lab.ask()
        assert (lab.a.asked, lab.relay.outcomes["silent"]) == (asked, repeated), "nobody waits there any more"
        await until(lambda: lab.a.tried >= 1)
        lab.a.seconds, lab.b.seconds = 0.0, 0.01
        tried = lab.a.tried
        await until(lambda: lab.a.tried > tried)
        async with asyncio.timeout(90):
            while lab.a.asked == asked:
                await lab.ask()
                await asyncio.sleep(0.01)
        tried = lab.a.tried
        await asyncio.sleep(1.0)
        assert lab.a.tried == tried, "a node that answers is not tried"


async def test_callers_that_are_less_patient_find_out_as_well(lab: Lab) -> None:
    lab.a.seconds = None
    given_up = 0
    async with lab.knowing("a", "b"):
        for _ in range(20):
            try:
                async with asyncio.timeout(0.15):
                    await lab.ask()
            except TimeoutError:
                given_up += 1
    assert 1 <= given_up <= 4
    assert lab.a.asked <= 4


async def test_a_slow_model_is_not_asked_for_twice(lab: Lab) -> None:
    lab.a.seconds = lab.b.seconds = 0.5
    async with lab.knowing("a", "b"):
        for _ in range(4):
            await lab.ask()
    assert lab.a.asked + lab.b.asked <= 5, "but for the first, when nobody knew"


async def test_while_others_are_answered_there_a_request_that_takes_long_is_waited_for(lab: Lab) -> None:
    async with lab.knowing("a", "b", draining="b"):
        lab.a.seconds = 0.7
        slow = asyncio.create_task(lab.ask())
        await until(lambda: lab.a.asked == 1)
        lab.a.seconds = 0.0
        for _ in range(8):
            await lab.ask()
            await asyncio.sleep(0.1)
        await slow
        assert (lab.relay.outcomes["silent"], lab.b.asked) == (0, 0)


async def test_with_no_other_copy_a_silent_one_is_waited_for(lab: Lab) -> None:
    lab.a.seconds = 1.0
    async with lab.knowing("a"):
        assert await lab.ask() >= 1.0
    assert lab.a.asked == 1


async def test_where_none_of_the_copies_is_heard_who_comes_later_is_told_so_soon(lab: Lab) -> None:
    """As on a host that was cut off: those that were under way wait, for they may have been heard."""
    async with lab.knowing("a", "b"):
        await asyncio.gather(*(lab.ask() for _ in range(4)))  # connections that are kept
        lab.a.seconds = lab.b.seconds = None
        waiting = asyncio.create_task(lab.ask(seconds=60.0))
        await until(lambda: lab.relay.outcomes["silent"] == 1)
        await asyncio.sleep(2 * LEAST_PATIENCE_SECONDS)
        assert lab.relay.expected_seconds("m") is None, "both are passed over"
        assert not waiting.done()
        lab.b.seconds = 0.0  # its network is back, and that connection is not
        await until(lambda: lab.relay.expected_seconds("m") is not None)
        await lab.ask()
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_what_can_be_answered_here_does_not_wait_for_a_copy_that_is_silent(lab: Lab) -> None:
    lab.a.seconds = None
    async with lab.knowing("a"):
        began = time.monotonic()
        with pytest.raises(UnavailableError, match="nothing came back"):
            await lab.ask(is_here=True)
        assert time.monotonic() - began < 3.0
        assert lab.relay.expected_seconds("m") is None
