"""The loop of a version's steps, over the real dispatcher and a model whose runs are held up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from testing.small_gpt import SmallGpt, greedy, small_gpt
from testing.until import until
from tiercel.core.errors import CapacityExceededError, DeadlineExceededError, InferenceFailedError, TiercelError
from tiercel.serving.accounting.delays import Delays
from tiercel.serving.dispatch.dispatcher import Dispatcher
from tiercel.serving.generation.loop import DecodeLoop
from tiercel.serving.generation.request import GenerationLimits
from tiercel.serving.generation.room import CacheRoom
from tiercel.serving.generation.row import Row
from tiercel.serving.generation.sampling import GREEDY
from tiercel.serving.generation.statistics import GenerationStatistics
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.runtime.engine import Session
from tiercel.serving.runtime.workers import Workers
from tiercel.serving.tensors import Array
from tiercel.trainer.generation import export_decoder

LIMITS = GenerationLimits(rows=2, waiting=2, tokens=50, context=100, cache_bytes=10**9, timeout=60.0)


class HeldUp(Session):
    """Runs only while it may."""

    __slots__ = ("breaks", "gate")

    def __init__(self, model: bytes) -> None:
        super().__init__(model)
        self.gate = threading.Event()
        self.gate.set()
        self.breaks = False

    def run_unobserved(self, outputs: Sequence[str], feeds: Mapping[str, Array], options: Any = None) -> list[Array]:
        assert self.gate.wait(90)
        if self.breaks:
            raise RuntimeError("a defect")
        return super().run_unobserved(outputs, feeds, options)


class Heard:
    """What was heard of a row."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.end: str | TiercelError = ""

    def token(self, token: int) -> None:
        self.tokens.append(token)

    def finished(self, reason: str) -> None:
        self.end = reason

    def failed(self, error: TiercelError) -> None:
        self.end = error


class Site:
    """A loop and what it runs on."""

    def __init__(self, model: SmallGpt, content: bytes, limits: GenerationLimits = LIMITS) -> None:
        self.model = model
        self.session = HeldUp(content)
        self.session.try_decoding()
        assert self.session.decoder is not None
        self.loaded = LoadedVersion("gpt", 1, self.session)
        self.workers = Workers(2)
        self.dispatcher = Dispatcher(self.workers, 10, 10**6)
        self.room = CacheRoom(limits.cache_bytes)
        self.idle = 0
        statistics = GenerationStatistics(Delays(0.0))
        self.loop = DecodeLoop(
            self.loaded, self.session.decoder, self.dispatcher, limits, self.room, statistics, self._on_idle
        )

    def _on_idle(self) -> None:
        self.idle += 1

    def ask(self, *prompt: int, tokens: int = 5, timeout: float = 60.0) -> tuple[Row, Heard]:
        heard = Heard()
        row = Row(self.loop, GREEDY, np.random.default_rng(0), frozenset(), 0.0, heard)
        row.ask(np.array(prompt), tokens)
        self.loop.add(row, timeout)
        return row, heard


@pytest.fixture(scope="module")
def made() -> tuple[SmallGpt, bytes]:
    model = small_gpt()
    return model, export_decoder(model, vocabulary=61, context_length=128).onnx


@pytest.fixture
def site(made: tuple[SmallGpt, bytes]) -> Iterator[Site]:
    site = Site(*made)
    yield site
    site.session.gate.set()
    site.dispatcher.close()
    site.workers.close()


async def test_steps_that_nobody_waits_for_do_not_keep_the_next_one_out(site: Site) -> None:
    site.session.gate.clear()
    for _ in range(20):
        row, heard = site.ask(1, 2)
        await asyncio.sleep(0.002)  # a worker may begin
        row.cancel()
        assert heard.end == ""
    assert (site.room.used, site.loop.begun, site.loop.waiting) == (0, 0, 0)
    _, heard = site.ask(3, 4)
    site.session.gate.set()
    await until(lambda: bool(heard.end))
    assert heard.tokens == greedy(site.model, [3, 4], 5)
    await until(lambda: site.loaded.in_flight == 0)
    assert site.idle >= 1


async def test_as_many_wait_as_may(site: Site) -> None:
    site.session.gate.clear()
    heard = [site.ask(row)[1] for row in range(4)]
    with pytest.raises(CapacityExceededError, match="try again"):
        site.ask(5)
    site.session.gate.set()
    await until(lambda: all(each.end == "length" for each in heard))
    assert [each.tokens for each in heard] == [greedy(site.model, [row], 5) for row in range(4)]


async def test_a_row_whose_time_is_up_says_so_and_the_others_go_on(site: Site) -> None:
    site.session.gate.clear()
    (_, late), (_, other) = site.ask(1, timeout=0.01), site.ask(2)
    await until(lambda: isinstance(late.end, DeadlineExceededError))
    site.session.gate.set()
    await until(lambda: other.end == "length")
    assert other.tokens == greedy(site.model, [2], 5)
    assert late.tokens == []


async def test_a_defect_fails_who_was_there_and_nobody_later(site: Site) -> None:
    site.session.breaks = True
    _, heard = site.ask(1)
    await until(lambda: isinstance(heard.end, InferenceFailedError))
    site.session.breaks = False
    _, heard = site.ask(1)
    await until(lambda: heard.end == "length")
    await until(lambda: site.loaded.in_flight == 0)


async def test_a_version_that_is_retired_goes_when_its_last_row_has_ended(site: Site) -> None:
    _, heard = site.ask(1, tokens=40)
    site.loaded.retire()
    async with asyncio.timeout(90):
        await site.loaded.wait_drained()
    assert (heard.end, heard.tokens) == ("length", greedy(site.model, [1], 40))


async def test_who_leaves_the_server_fails_what_is_not_complete(site: Site) -> None:
    site.session.gate.clear()
    heard = [site.ask(row)[1] for row in range(4)]
    site.loop.break_off(DeadlineExceededError("leaving"))
    assert all(isinstance(each.end, DeadlineExceededError) for each in heard)
    assert site.loop.begun == site.loop.waiting == site.room.used == 0


async def test_loops_wait_for_one_anothers_cache(made: tuple[SmallGpt, bytes]) -> None:
    one, other = Site(*made), Site(*made)
    room = CacheRoom(512 * 10)
    for each in (one, other):
        each.loop = DecodeLoop(
            each.loaded,
            each.loop.decoder,
            each.dispatcher,
            LIMITS,
            room,
            GenerationStatistics(Delays(0.0)),
            lambda: None,
        )
    one.session.gate.clear()
    _, first = one.ask(1, 2, tokens=8)
    _, second = other.ask(3, 4, tokens=8)
    assert (other.loop.begun, other.loop.waiting) == (0, 1)
    one.session.gate.set()
    await until(lambda: first.end == second.end == "length")
    assert second.tokens == greedy(other.model, [3, 4], 8)
    assert room.used == 0
    for each in (one, other):
        each.dispatcher.close()
        each.workers.close()
