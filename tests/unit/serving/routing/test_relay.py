"""Which copy gets a request that is handed on, with servers that are a few lines each."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testing.routes import clear, write_routes
from tiercel.core.errors import DeadlineExceededError
from tiercel.serving.routing.calls import CallAnswer, is_failure
from tiercel.serving.routing.connection import Answer
from tiercel.serving.routing.directory import Directory
from tiercel.serving.routing.pool import Credentials, PeerLimits
from tiercel.serving.routing.relay import Handing, Relay


class Copies:
    """Servers that answer a model each in their way.

    Args:
        file: Where the table is left.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.asked: Counter[str] = Counter()
        self.routes: dict[str, list[tuple[str, str]]] = {}
        self.ways: dict[tuple[str, str], tuple[bytes, float]] = {}
        self._serving: set[asyncio.Task[object] | None] = set()
        self._stack = contextlib.AsyncExitStack()

    async def start(self, name: str, **models: tuple[bytes, float]) -> None:
        """A node that answers models with such a head, after so many seconds."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._serving.add(task := asyncio.current_task())
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while head := await reader.readuntil(b"\r\n\r\n"):
                    model = head.split(b" ")[1].decode().strip("/")
                    self.asked[name] += 1
                    answer, seconds = self.ways[name, model]
                    await asyncio.sleep(seconds)
                    writer.write(b"HTTP/1.1 " + answer + b"Content-Length: 0\r\n\r\n")
                    await writer.drain()
            self._serving.discard(task)
            writer.transport.abort()

        server = await self._stack.enter_async_context(await asyncio.start_server(serve, "127.0.0.1", 0))
        port = server.sockets[0].getsockname()[1]
        for model, way in models.items():
            self.ways[name, model] = way
            self.routes.setdefault(model, []).append((name, f"127.0.0.1:{port}"))

    async def close(self) -> None:
        """End them all."""
        serving = [task for task in self._serving if task is not None]
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await self._stack.aclose()

    def relay(self) -> Relay:
        """One that knows them."""
        write_routes(self.file, "me", {model: tuple(clear(*to) for to in led) for model, led in self.routes.items()})
        draw = random.Random(5).randrange
        relay = Relay(Directory(self.file), Credentials(None, None), PeerLimits(16, 1 << 20), 1 << 20, draw)
        self._stack.callback(relay.close)
        return relay


@pytest.fixture
async def copies(tmp_path: Path) -> AsyncIterator[Copies]:
    made = Copies(tmp_path / "routes.json")
    yield made
    await made.close()


GOOD = b"200 OK\r\n"


async def ask(relay: Relay, model: str = "m", seconds: float = 5.0) -> Answer:
    handing = Handing(model, b"GET", f"/{model}".encode(), b"", b"")
    return await relay.ask(handing, asyncio.get_running_loop().time() + seconds)


@pytest.mark.parametrize(
    "head", [b"503 Full\r\n", b"500 Broken\r\n", b"200 OK\r\n" + CallAnswer(14, "leaves").headers()]
)
async def test_a_copy_that_fails_at_once_does_not_look_idle(copies: Copies, head: bytes) -> None:
    await copies.start("fails", m=(head, 0.0))
    await copies.start("works", m=(GOOD, 0.003))
    relay = copies.relay()
    for _ in range(60):
        await ask(relay)
    assert copies.asked["fails"] <= 2
    assert copies.asked["works"] >= 58


async def test_what_callers_do_wrong_is_not_held_against_a_copy(copies: Copies) -> None:
    await copies.start("quick", m=(b"400 Wrong\r\n", 0.0))
    await copies.start("slow", m=(GOOD, 0.05))
    relay = copies.relay()
    for _ in range(20):
        await ask(relay)
    assert copies.asked["quick"] >= 17


async def test_a_model_that_is_slow_on_a_node_makes_no_other_one_late_there(copies: Copies) -> None:
    await copies.start("one", m=(GOOD, 0.0), slow=(GOOD, 0.1))
    await copies.start("two", m=(GOOD, 0.03))
    relay = copies.relay()
    for _ in range(5):
        await ask(relay, "slow")
    seconds = relay.expected_seconds("slow")
    assert seconds is not None
    assert seconds > 0.02
    copies.asked.clear()
    for _ in range(20):
        await ask(relay)
    assert copies.asked["one"] >= 17


async def test_what_is_under_way_goes_down_however_an_attempt_ends(copies: Copies) -> None:
    await copies.start("slow", m=(GOOD, 30.0))
    relay = copies.relay()
    with pytest.raises(DeadlineExceededError):
        await ask(relay, seconds=0.05)
    waiting = asyncio.create_task(ask(relay))
    await asyncio.sleep(0.05)
    assert relay._load("slow", "m").in_flight == 1
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    assert relay._load("slow", "m").in_flight == 0
    copies.ways["slow", "m"] = (b"nonsense\r\n", 0.0)
    with contextlib.suppress(Exception):
        await ask(relay)
    assert relay._load("slow", "m").in_flight == 0


async def test_what_is_known_of_many_models_is_bounded(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiercel.serving.routing.relay._MANY_LOADS", 5)
    monkeypatch.setattr("tiercel.serving.routing.relay._FORGET_SECONDS", 0.0)
    await copies.start("one", **{f"m{number}": (GOOD, 0.0) for number in range(20)})
    relay = copies.relay()
    for number in range(20):
        await ask(relay, f"m{number}")
        assert len(relay._loads) <= 5


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (CallAnswer(0), False),
        (CallAnswer(3, "wrong"), False),
        (CallAnswer(4, "too late for its caller"), False),
        (CallAnswer(8, "full"), True),
        (CallAnswer(8, "its key's rate", b"\x08\x08"), False),
        (CallAnswer(13, "broken"), True),
        (CallAnswer(14, "leaves"), True),
    ],
)
def test_calls_fail_for_their_servers_reasons_or_for_their_callers(answer: CallAnswer, *, failure: bool) -> None:
    lines = [line.split(b": ", 1) for line in answer.headers().split(b"\r\n") if line]
    assert is_failure(200, {name.lower(): value for name, value in lines}) is failure


@pytest.mark.parametrize(("status", "failure"), [(200, False), (404, False), (429, False), (504, False), (503, True)])
def test_answers_fail_for_their_servers_reasons_or_for_their_callers(status: int, *, failure: bool) -> None:
    assert is_failure(status, {}) is failure
