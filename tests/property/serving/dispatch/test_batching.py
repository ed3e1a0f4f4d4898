"""Whatever waits, in whatever order it is taken, cancelled or added to: each call once, in order, and never mixed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from testing.calls import NoteCall, call_of, session
from tiercel.serving.accounting.waiting import WaitingCalls
from tiercel.serving.dispatch.call import Call
from tiercel.serving.dispatch.rows import run_calls

MAX_ROWS = 6
keys = st.sampled_from(["x", "y", None])
additions = st.tuples(st.just("add"), st.sampled_from("ab"), keys, st.integers(0, 9), st.integers(0, 4))
others = st.tuples(st.sampled_from(["take", "discard"]), st.integers(0, 30))


def added(step: tuple[object, ...], number: int) -> NoteCall:
    _, name, key, rows, priority = step
    assert isinstance(rows, int)
    assert isinstance(priority, int)
    rows = rows if key is not None else 1
    return call_of(str(name), key=key, rows=rows, max_rows=MAX_ROWS, begin=number / 10, priority=priority, value=number)


@given(st.lists(st.one_of(additions, others), max_size=60))
def test_every_call_is_taken_once_in_order_and_with_its_like(steps: list[tuple[object, ...]]) -> None:
    waiting: WaitingCalls[Call] = WaitingCalls()
    expected: list[NoteCall] = []
    taken: list[NoteCall] = []

    def take() -> None:
        first = waiting.first()
        if first is None:
            assert not expected
            return
        assert first.rank == min(call.rank for call in expected)
        batch = [call for call in waiting.take(0.0) if isinstance(call, NoteCall)]
        like = [call for call in expected if (call.loaded, call.key) == (first.loaded, first.key)]
        assert batch[0] is first
        assert [call.rank for call in batch] == sorted(call.rank for call in like)[: len(batch)]
        assert {(call.loaded.model, call.key) for call in batch} == {(first.loaded.model, first.key)}
        assert len(batch) == 1 or sum(call.rows for call in batch) <= MAX_ROWS
        assert first.key is not None or len(batch) == 1
        for call in batch:
            expected.remove(call)
        taken.extend(batch)

    for number, step in enumerate(steps):
        if step[0] == "add":
            call = added(step, number)
            waiting.add(call)
            expected.append(call)
        elif step[0] == "take":
            take()
        elif expected:
            index = step[1]
            assert isinstance(index, int)
            waiting.discard(expected.pop(index % len(expected)))
        assert len(waiting) == len(expected)
        assert waiting.rows == sum(call.rows for call in expected)
    while waiting:
        take()
    assert expected == []
    assert len(set(taken)) == len(taken)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-100, 100)), min_size=1, max_size=12))
def test_rows_come_back_to_whom_they_belong(calls: list[tuple[int, int]]) -> None:
    ran = run_calls(session(), [call_of("m", rows=rows, value=value) for rows, value in calls])
    assert ran.rows == sum(rows for rows, _ in calls)
    for (rows, value), outcome in zip(calls, ran.outcomes, strict=True):
        assert isinstance(outcome, list)
        np.testing.assert_array_equal(outcome[0], np.full((rows, 4), value + 1, np.float32))
