from __future__ import annotations

import asyncio

import numpy as np
import pytest

from tests.support import onnx_models
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


def submit(executor: ThreadExecutor, session: Session, steps: int, timeout: float = 30.0, size: int = 8) -> Outcome:
    outcome = Outcome()
    feeds = {"k": np.array(steps)}
    executor.submit(Call(session, feeds, ["y"], 1, size, timeout, outcome.answered, outcome.ended.set))
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
