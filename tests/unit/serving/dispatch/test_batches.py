"""Which calls run together, and how long they wait for company."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from testing.waiting_calls import LONG, Plus, Stage, values
from tiercel.core.errors import InvalidRequestError
from tiercel.serving.runtime.engine import Session
from tiercel.serving.runtime.measure import Batching
from tiercel.serving.runtime.model_settings import ModelSettings
from tiercel.serving.runtime.profile import LatencyProfile


@pytest.mark.parametrize("inline_elements", [-1, 1_000_000])
async def test_what_came_in_one_turn_of_the_loop_runs_together(inline_elements: int) -> None:
    plus = Plus(Stage(100, 100_000))
    plus.session.inline_elements = inline_elements
    outcomes = [plus.ask(value, rows=2) for value in range(7)]
    assert await values(outcomes) == [value + 1 for value in range(7)]
    assert plus.sizes() == {8: 1, 6: 1}
    statistics = plus.loaded.statistics
    assert (statistics.successes, statistics.inferences, statistics.executions) == (7, 14, 2)
    assert plus.loaded.in_flight == 0


async def test_what_came_while_the_worker_was_busy_runs_together(session: Session) -> None:
    stage = Stage(100, 100_000)
    plus = Plus(stage)
    busy = stage.submit(session, LONG)
    await asyncio.sleep(0)
    outcomes = [plus.ask(0)]
    await asyncio.sleep(0)
    outcomes.append(plus.ask(1))  # in another turn of the loop
    await asyncio.sleep(0)
    busy.cancel()
    assert await values(outcomes) == [1, 2]
    assert plus.sizes() == {2: 1}


@pytest.mark.parametrize(("seconds", "here"), [(0.0002, True), (0.002, False)])
async def test_small_calls_of_one_turn_run_on_the_loop_while_short_together(seconds: float, here: bool) -> None:
    plus = Plus(Stage(100, 100_000))
    plus.session.inline_elements = 8
    plus.session.batching = Batching(LatencyProfile((1,), (seconds,)))
    many = [plus.ask(value) for value in range(3)]
    await asyncio.sleep(0)
    assert [call.result.done() for call in many] == [here] * 3
    assert await values(many) == [1, 2, 3]


async def test_what_a_turn_takes_is_what_its_batches_take() -> None:
    plus = Plus(Stage(100, 100_000))
    plus.session.inline_elements = 8
    # Twice the largest batch would take too long as one run; it is two, and those do not.
    plus.session.batching = Batching(LatencyProfile((1, 8, 16), (0.0002, 0.0008, 0.004)))
    many = [plus.ask(value) for value in range(16)]
    await asyncio.sleep(0)
    assert all(call.result.done() for call in many)
    assert plus.sizes() == {8: 2}
    more = [plus.ask(value) for value in range(24)]
    await asyncio.sleep(0)
    assert not any(call.result.done() for call in more)
    assert await values(more) == [value + 1 for value in range(24)]


async def test_more_than_the_event_loop_should_do_goes_to_a_worker() -> None:
    plus = Plus(Stage(100, 100_000))
    plus.session.inline_elements = 8
    one = plus.ask(1)
    await asyncio.sleep(0)
    assert one.result.done()
    many = [plus.ask(value) for value in range(3)]
    await asyncio.sleep(0)
    assert not any(call.result.done() for call in many)
    assert await values(many) == [1, 2, 3]


async def test_calls_of_several_versions_and_keys_in_one_turn_do_not_mix() -> None:
    stage = Stage(100, 100_000)
    first, second = Plus(stage), Plus(stage)
    first.session.inline_elements = second.session.inline_elements = 1_000_000
    outcomes = [plus.ask(value, key=key) for value, key in enumerate("abca") for plus in (first, second)]
    assert await values(outcomes) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert first.sizes() == second.sizes() == {2: 1, 1: 2}


async def test_one_bad_call_does_not_fail_its_neighbours(session: Session) -> None:
    plus = Plus(Stage(100, 100_000))
    plus.session.inline_elements = 1_000_000
    outcomes = [plus.ask(value) for value in range(3)]
    bad = plus.call(5)
    bad.feeds = {"x": np.zeros((1, 3), np.float32)}
    plus.stage.put(bad)
    assert isinstance(await bad.wait(), InvalidRequestError)
    assert await values(outcomes) == [1, 2, 3]
    assert plus.loaded.statistics.successes == 3
    assert plus.loaded.in_flight == 0


async def test_a_run_goes_on_while_one_of_its_calls_is_wanted() -> None:
    plus = Plus(Stage(100, 100_000))
    leaves, stays = plus.ask(1), plus.ask(2)
    asyncio.get_running_loop().call_soon(leaves.cancel)  # after the batch was handed over
    assert await values([stays]) == [3]
    assert not leaves.result.done()


async def test_with_a_queue_delay_calls_wait_for_company_and_a_full_batch_does_not() -> None:
    plus = Plus(Stage(100, 100_000, delay=3600.0), batch_rows=3)
    plus.session.inline_elements = 1_000_000
    outcomes = [plus.ask(0)]
    for value in (1, 2):
        await asyncio.sleep(0)
        assert not outcomes[0].result.done()
        outcomes.append(plus.ask(value))
    assert await values(outcomes) == [1, 2, 3]
    assert plus.sizes() == {3: 1}


async def test_a_model_may_have_a_queue_delay_of_its_own_and_another_none() -> None:
    stage = Stage(100, 100_000)
    plus, other = Plus(stage, batch_rows=2), Plus(stage)
    plus.session.apply(ModelSettings(max_queue_delay=3600.0))
    waits, goes = plus.ask(0), other.ask(0)
    assert await values([goes]) == [1]
    assert not waits.result.done()
    assert await values([waits, plus.ask(1)]) == [1, 2]
    assert plus.sizes() == {2: 1}


async def test_a_queue_delay_ends() -> None:
    plus = Plus(Stage(100, 100_000, delay=0.01))
    assert await values([plus.ask(0)]) == [1]
