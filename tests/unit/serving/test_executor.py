from __future__ import annotations

import asyncio
import time
from functools import partial

import numpy as np
import pytest

from tests.support import onnx_models
from tiercel.serving.accounts import Account, ModelShare
from tiercel.serving.engine import Session
from tiercel.serving.errors import DeadlineExceededError, OverloadedError, ServingError
from tiercel.serving.executor import Call, ThreadExecutor
from tiercel.serving.tensors import Array

LONG = 500_000_000  # steps of a loop: minutes, so it only ends when it is broken off


class Outcome:
    """What became of a call."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[list[Array] | ServingError] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()

    def answered(self, result: list[Array] | ServingError, seconds: float) -> None:
        assert seconds >= 0
        self.answer.set_result(result)  # raises if it is called twice

    async def wait(self) -> list[Array] | ServingError:
        async with asyncio.timeout(30):
            return await self.answer

    async def wait_ended(self) -> None:
        async with asyncio.timeout(30):
            await self.ended.wait()


def submit(
    executor: ThreadExecutor,
    session: Session,
    steps: int,
    timeout: float = 30.0,
    size: int = 8,
    account: Account | None = None,
) -> Outcome:
    outcome = Outcome()
    feeds = {"k": np.array(steps)}
    whose = account or Account("m")
    executor.submit(Call(session, feeds, ["y"], 1, size, timeout, outcome.answered, outcome.ended.set, whose))
    return outcome


@pytest.fixture
def session() -> Session:
    return Session(onnx_models.counting_loop())


async def test_a_short_call_is_answered_before_submit_returns(session: Session) -> None:
    executor = ThreadExecutor(1, 1, 1)
    session.inline_elements = 1
    outcome = submit(executor, session, 5)
    assert outcome.ended.is_set()
    result = outcome.answer.result()
    assert isinstance(result, list)
    assert int(result[0]) == 5
    executor.close()


async def test_other_calls_run_in_a_thread(session: Session) -> None:
    executor = ThreadExecutor(1, 10, 1000)
    outcomes = [submit(executor, session, steps) for steps in range(5)]
    assert not outcomes[0].answer.done()
    for steps, outcome in enumerate(outcomes):
        result = await outcome.wait()
        assert isinstance(result, list)
        assert int(result[0]) == steps
        await outcome.wait_ended()
    executor.close()


async def test_a_call_that_takes_too_long_is_answered_and_broken_off(session: Session) -> None:
    executor = ThreadExecutor(1, 10, 1000)
    late = submit(executor, session, LONG, timeout=0.05)
    waiting = submit(executor, session, 1, timeout=0.05)
    next_one = submit(executor, session, 3)
    assert isinstance(await late.wait(), DeadlineExceededError)
    assert isinstance(await waiting.wait(), (list, DeadlineExceededError))
    result = await next_one.wait()
    assert isinstance(result, list)
    assert int(result[0]) == 3
    await late.wait_ended()
    await waiting.wait_ended()
    executor.close()


async def test_more_calls_than_may_wait_are_refused_and_room_comes_back(session: Session) -> None:
    executor = ThreadExecutor(1, 2, 1000)
    outcomes = [submit(executor, session, LONG, timeout=0.2) for _ in range(2)]
    with pytest.raises(OverloadedError, match="2 requests are waiting already"):
        submit(executor, session, 1)
    for outcome in outcomes:
        await outcome.wait_ended()
    assert isinstance(await submit(executor, session, 1).wait(), list)
    executor.close()


async def test_more_bytes_than_may_wait_are_refused_but_one_call_always_fits(session: Session) -> None:
    executor = ThreadExecutor(1, 10, 100)
    large = submit(executor, session, LONG, timeout=0.2, size=1000)
    with pytest.raises(OverloadedError):
        submit(executor, session, 1)
    await large.wait_ended()
    executor.close()


async def test_closing_answers_and_ends_everything(session: Session) -> None:
    executor = ThreadExecutor(1, 10, 1000)
    outcomes = [submit(executor, session, LONG) for _ in range(3)]
    executor.close()
    for outcome in outcomes:
        assert isinstance(await outcome.wait(), DeadlineExceededError)
        await outcome.wait_ended()


def limited(name: str, *, weight: float = 1.0, cap: float | None = None) -> Account:
    account = Account(name)
    account.declare(ModelShare(weight, cap), time.perf_counter())
    return account


STEPS = 2_000  # a call of a millisecond or so


async def test_models_share_the_threads_by_weight(session: Session) -> None:
    executor = ThreadExecutor(1, 1000, 100_000)
    executor.shares_changed(limited=True)
    large, small = limited("large", weight=0.75), limited("small", weight=0.25)
    order: list[str] = []
    outcomes = []

    def note(name: str, _: object) -> None:
        order.append(name)

    for account in (small, large):  # the order in which they come gives the small one no more
        for _ in range(80):
            outcome = submit(executor, session, STEPS, account=account)
            outcome.answer.add_done_callback(partial(note, account.name))
            outcomes.append(outcome)
    for outcome in outcomes:
        await outcome.wait()
    # while both wait; fair order is by CPU, which varies from call to call
    assert 45 <= order[:80].count("large") <= 72
    executor.close()


async def test_a_model_over_its_cap_waits_and_the_others_do_not(session: Session) -> None:
    executor = ThreadExecutor(1, 1000, 100_000)
    executor.shares_changed(limited=True)
    capped, free = limited("capped", cap=1e-3), limited("free")
    first = submit(executor, session, 200 * STEPS, account=capped)
    assert isinstance(await first.wait(), list)  # it had saved up something; now it is in debt for minutes
    late = [submit(executor, session, 1, timeout=0.2, account=capped) for _ in range(2)]
    session.inline_elements = 1
    late.append(submit(executor, session, 1, timeout=0.2, account=capped))
    session.inline_elements = -1
    for _ in range(5):
        assert isinstance(await submit(executor, session, 1, account=free).wait(), list)
    for outcome in late:
        assert isinstance(await outcome.wait(), DeadlineExceededError)
        await outcome.wait_ended()
    executor.close()


@pytest.mark.parametrize("inline", [1, -1])
async def test_those_who_wait_go_on_once_the_cap_is_lifted(session: Session, inline: int) -> None:
    executor = ThreadExecutor(1, 1000, 100_000)
    executor.shares_changed(limited=True)
    account = limited("m", cap=1e-3)
    account.charge(10.0)
    session.inline_elements = inline
    outcomes = [submit(executor, session, steps, account=account) for steps in range(4)]
    assert not any(outcome.answer.done() for outcome in outcomes)
    account.declare(ModelShare(), time.perf_counter())
    executor.shares_changed(limited=False)
    for steps, outcome in enumerate(outcomes):
        result = await outcome.wait()
        assert isinstance(result, list)
        assert int(result[0]) == steps
        await outcome.wait_ended()
    executor.close()


async def test_those_who_wait_go_on_once_enough_is_earned(session: Session) -> None:
    executor = ThreadExecutor(1, 1000, 100_000)
    executor.shares_changed(limited=True)
    account = limited("m", cap=1.0)
    account.charge(0.15)  # 0.1 s were saved up, so it is in debt for 50 ms
    outcome = submit(executor, session, 3, account=account)
    assert not outcome.answer.done()
    assert isinstance(await outcome.wait(), list)
    executor.close()


async def test_a_model_with_a_cap_takes_no_room_from_others(session: Session) -> None:
    executor = ThreadExecutor(1, 8, 100_000)
    executor.shares_changed(limited=True)
    capped = limited("capped", cap=1e-3)
    capped.charge(10.0)
    waiting = [submit(executor, session, 1, account=capped) for _ in range(2)]
    with pytest.raises(OverloadedError, match="2 requests"):
        submit(executor, session, 1, account=capped)
    free = [submit(executor, session, 1, account=limited("free")) for _ in range(8)]
    for outcome in free:
        assert isinstance(await outcome.wait(), list)
    executor.close()
    for outcome in waiting:
        assert isinstance(await outcome.wait(), DeadlineExceededError)
        await outcome.wait_ended()


async def test_what_calls_cost_is_counted(session: Session) -> None:
    executor = ThreadExecutor(1, 8, 100_000)
    threaded, inline = Account("threaded"), Account("inline")
    for _ in range(3):
        await submit(executor, session, STEPS, account=threaded).wait()
    session.inline_elements = 1
    for _ in range(20):
        submit(executor, session, STEPS, account=inline)
    assert threaded.cpu_seconds > 0
    assert inline.cpu_seconds > threaded.cpu_seconds
    executor.close()
