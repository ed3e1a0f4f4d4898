from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import ClassVar

import numpy as np
import pytest

from tests.support import onnx_models
from tiercel.serving.accounts import Account, ModelShare
from tiercel.serving.batching.batcher import Batcher
from tiercel.serving.batching.call import Call
from tiercel.serving.engine import Session
from tiercel.serving.errors import DeadlineExceededError, OverloadedError, ServingError
from tiercel.serving.registry import LoadedVersion
from tiercel.serving.tensors import Array
from tiercel.serving.workers import Workers

LONG = 500_000_000  # steps of a loop: minutes, so it only ends when it is broken off


class Outcome(Call):
    """A call that remembers what became of it."""

    result: asyncio.Future[list[Array] | ServingError]

    def answer(self, outputs: list[Array], now: float) -> None:
        assert now >= self.begin
        self.result.set_result(outputs)  # raises if it is called twice

    def fail(self, error: ServingError, now: float) -> None:
        assert now >= self.begin
        self.result.set_result(error)

    async def wait(self) -> list[Array] | ServingError:
        async with asyncio.timeout(30):
            return await self.result

    async def wait_ended(self) -> None:
        """Until nothing of it is in use any more."""
        self.loaded.retire()
        async with asyncio.timeout(30):
            await self.loaded.wait_drained()


class Stage:
    """A batcher with workers of its own, which end with the test."""

    opened: ClassVar[list[Stage]] = []

    def __init__(self, max_pending: int = 10, max_bytes: int = 1000, delay: float = 0.0, threads: int = 1) -> None:
        self.workers = Workers(threads)
        self.batcher = Batcher(self.workers, max_pending, max_bytes, delay)
        self.opened.append(self)

    def close(self) -> None:
        self.batcher.close()
        self.workers.close()

    def submit(
        self,
        session: Session,
        steps: int,
        timeout: float = 30.0,
        size: int = 8,
        account: Account | None = None,
    ) -> Outcome:
        loaded = LoadedVersion("m", 1, session, account)
        begin = time.perf_counter()
        feeds = {"k": np.array(steps)}
        call = Outcome(loaded, session, feeds, ("y",), None, 1, 1, 1, size, begin, begin + timeout)
        return self.put(call)

    def put(self, call: Outcome) -> Outcome:
        call.result = asyncio.get_running_loop().create_future()
        self.batcher.submit(call)
        return call


@pytest.fixture(autouse=True)
async def ended() -> AsyncIterator[None]:
    yield
    for stage in Stage.opened:
        stage.close()
        Stage.opened.clear()


@pytest.fixture
def session() -> Session:
    return Session(onnx_models.counting_loop())


async def test_a_short_call_is_answered_in_the_same_turn_of_the_event_loop(session: Session) -> None:
    stage = Stage(1, 1)
    session.inline_elements = 1
    outcome = stage.submit(session, 5)
    await asyncio.sleep(0)
    assert outcome.loaded.in_flight == 0
    result = outcome.result.result()
    assert isinstance(result, list)
    assert int(result[0]) == 5


async def test_other_calls_run_in_a_thread(session: Session) -> None:
    stage = Stage(10, 1000)
    outcomes = [stage.submit(session, steps) for steps in range(5)]
    assert not outcomes[0].result.done()
    for steps, outcome in enumerate(outcomes):
        result = await outcome.wait()
        assert isinstance(result, list)
        assert int(result[0]) == steps
        await outcome.wait_ended()


async def test_a_call_that_takes_too_long_is_answered_and_broken_off(session: Session) -> None:
    stage = Stage(10, 1000)
    late = stage.submit(session, LONG, timeout=0.05)
    waiting = stage.submit(session, 1, timeout=0.05)
    next_one = stage.submit(session, 3)
    assert isinstance(await late.wait(), DeadlineExceededError)
    assert isinstance(await waiting.wait(), (list, DeadlineExceededError))
    result = await next_one.wait()
    assert isinstance(result, list)
    assert int(result[0]) == 3
    await late.wait_ended()
    await waiting.wait_ended()


async def test_more_calls_than_may_wait_are_refused_and_room_comes_back(session: Session) -> None:
    stage = Stage(2, 1000)
    outcomes = [stage.submit(session, LONG, timeout=0.2) for _ in range(2)]
    with pytest.raises(OverloadedError, match="2 requests are waiting already"):
        stage.submit(session, 1)
    for outcome in outcomes:
        await outcome.wait_ended()
    assert isinstance(await stage.submit(session, 1).wait(), list)


async def test_more_bytes_than_may_wait_are_refused_but_one_call_always_fits(session: Session) -> None:
    stage = Stage(10, 100)
    large = stage.submit(session, LONG, timeout=0.2, size=1000)
    with pytest.raises(OverloadedError):
        stage.submit(session, 1)
    await large.wait_ended()


async def test_closing_answers_and_ends_everything(session: Session) -> None:
    stage = Stage(10, 1000)
    outcomes = [stage.submit(session, LONG) for _ in range(3)]
    await asyncio.sleep(0)
    stage.batcher.close()
    for outcome in outcomes:
        assert isinstance(await outcome.wait(), DeadlineExceededError)
        await outcome.wait_ended()


def limited(name: str, *, weight: float = 1.0, cap: float | None = None) -> Account:
    account = Account(name)
    account.declare(ModelShare(weight, cap), time.perf_counter())
    return account


STEPS = 2_000  # a call of a millisecond or so


async def test_models_share_the_threads_by_weight(session: Session) -> None:
    stage = Stage(1000, 100_000)
    stage.batcher.shares_changed(limited=True)
    large, small = limited("large", weight=0.75), limited("small", weight=0.25)
    order: list[str] = []
    outcomes = []

    def note(name: str, _: object) -> None:
        order.append(name)

    for account in (small, large):  # the order in which they come gives the small one no more
        for _ in range(80):
            outcome = stage.submit(session, STEPS, account=account)
            outcome.result.add_done_callback(partial(note, account.name))
            outcomes.append(outcome)
    for outcome in outcomes:
        await outcome.wait()
    # while both wait; fair order is by CPU, which varies from call to call
    assert 45 <= order[:80].count("large") <= 72


async def test_a_model_over_its_cap_waits_and_the_others_do_not(session: Session) -> None:
    stage = Stage(1000, 100_000)
    stage.batcher.shares_changed(limited=True)
    capped, free = limited("capped", cap=1e-3), limited("free")
    first = stage.submit(session, 200 * STEPS, account=capped)
    assert isinstance(await first.wait(), list)  # it had saved up something; now it is in debt for minutes
    late = [stage.submit(session, 1, timeout=0.2, account=capped) for _ in range(2)]
    session.inline_elements = 1
    late.append(stage.submit(session, 1, timeout=0.2, account=capped))
    session.inline_elements = -1
    for _ in range(5):
        assert isinstance(await stage.submit(session, 1, account=free).wait(), list)
    for outcome in late:
        assert isinstance(await outcome.wait(), DeadlineExceededError)
        await outcome.wait_ended()


@pytest.mark.parametrize("inline", [1, -1])
async def test_those_who_wait_go_on_once_the_cap_is_lifted(session: Session, inline: int) -> None:
    stage = Stage(1000, 100_000)
    stage.batcher.shares_changed(limited=True)
    account = limited("m", cap=1e-3)
    account.charge(10.0)
    session.inline_elements = inline
    outcomes = [stage.submit(session, steps, account=account) for steps in range(4)]
    assert not any(outcome.result.done() for outcome in outcomes)
    account.declare(ModelShare(), time.perf_counter())
    stage.batcher.shares_changed(limited=False)
    for steps, outcome in enumerate(outcomes):
        result = await outcome.wait()
        assert isinstance(result, list)
        assert int(result[0]) == steps
        await outcome.wait_ended()


async def test_those_who_wait_go_on_once_enough_is_earned(session: Session) -> None:
    stage = Stage(1000, 100_000)
    stage.batcher.shares_changed(limited=True)
    account = limited("m", cap=1.0)
    account.charge(0.15)  # 0.1 s were saved up, so it is in debt for 50 ms
    outcome = stage.submit(session, 3, account=account)
    assert not outcome.result.done()
    assert isinstance(await outcome.wait(), list)


async def test_a_model_with_a_cap_takes_no_room_from_others(session: Session) -> None:
    stage = Stage(8, 100_000)
    stage.batcher.shares_changed(limited=True)
    capped = limited("capped", cap=1e-3)
    capped.charge(10.0)
    waiting = [stage.submit(session, 1, account=capped) for _ in range(2)]
    with pytest.raises(OverloadedError, match="2 requests"):
        stage.submit(session, 1, account=capped)
    free = [stage.submit(session, 1, account=limited("free")) for _ in range(8)]
    for outcome in free:
        assert isinstance(await outcome.wait(), list)
    stage.batcher.close()
    for outcome in waiting:
        assert isinstance(await outcome.wait(), DeadlineExceededError)
        await outcome.wait_ended()


async def test_what_calls_cost_is_counted(session: Session) -> None:
    stage = Stage(8, 100_000)
    threaded, inline = Account("threaded"), Account("inline")
    for _ in range(3):
        await stage.submit(session, STEPS, account=threaded).wait()
    session.inline_elements = 1
    for _ in range(20):
        await stage.submit(session, STEPS, account=inline).wait()
    assert threaded.cpu_seconds > 0
    assert inline.cpu_seconds > threaded.cpu_seconds
