from __future__ import annotations

import math

import pytest

from testing.calls import NoteCall, call_of
from tiercel.serving.accounting.waiting import WaitingCalls
from tiercel.serving.dispatch.call import Call
from tiercel.serving.dispatch.dispatcher import batches_of


def taken(waiting: WaitingCalls[Call], now: float = 0.0, per_row: float = 0.0) -> list[NoteCall]:
    first = waiting.first()
    assert first is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(first.session), "estimate", lambda _, rows: per_row * rows)
        return [call for call in waiting.take(now) if isinstance(call, NoteCall)]


def filled(*calls: NoteCall) -> WaitingCalls[Call]:
    waiting: WaitingCalls[Call] = WaitingCalls()
    for call in calls:
        waiting.add(call)
    return waiting


def test_nothing_waits_at_first() -> None:
    waiting: WaitingCalls[Call] = WaitingCalls()
    assert waiting.first() is None
    assert not waiting


def test_rows_are_counted_and_not_calls() -> None:
    calls = [call_of("m", rows=rows, max_rows=8, begin=index) for index, rows in enumerate((3, 4, 2, 5))]
    waiting = filled(*calls)
    assert (len(waiting), waiting.rows) == (4, 14)
    assert waiting.is_full(calls[0])
    assert taken(waiting) == calls[:2]
    assert (len(waiting), waiting.rows) == (2, 7)
    assert not waiting.is_full(calls[2])
    assert taken(waiting) == calls[2:]


def test_a_call_of_more_rows_than_a_batch_has_runs_by_itself() -> None:
    large, small = call_of("m", rows=20, max_rows=8, begin=0), call_of("m", rows=1, max_rows=8, begin=1)
    waiting = filled(large, small)
    assert taken(waiting) == [large]
    assert taken(waiting) == [small]


def test_a_queue_is_run_in_the_largest_batches_that_it_fills(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [call_of("m", max_rows=2, begin=index) for index in range(15)]
    monkeypatch.setattr(calls[0].session, "queue_rows", (4, 8))  # shared by all calls made like this
    waiting = filled(*calls)
    assert waiting.most_rows(calls[0]) == 8
    assert taken(waiting) == calls[:8]
    assert taken(waiting) == calls[8:12]  # of seven that are left, since half of a larger batch is not worth the wait
    assert taken(waiting) == calls[12:14]
    assert waiting.most_rows(calls[14]) == 2


def test_a_larger_batch_has_to_leave_as_much_to_the_other_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [call_of("m", max_rows=2, begin=index) for index in range(15)]
    monkeypatch.setattr(calls[0].session, "queue_rows", (4, 8))
    waiting = filled(*calls)
    first = calls[0]
    assert [waiting.most_rows(first, workers) for workers in (1, 2, 3, 4)] == [8, 4, 4, 2]
    assert waiting.take(0.0, workers=2) == calls[:4]


def test_only_calls_of_one_version_and_one_key_run_together() -> None:
    calls = [
        call_of(name, key=key, begin=index) for index, (name, key) in enumerate(zip("aabaa", "xyxxy", strict=True))
    ]
    waiting = filled(*calls)
    assert taken(waiting) == [calls[0], calls[3]]
    assert taken(waiting) == [calls[1], calls[4]]
    assert taken(waiting) == [calls[2]]
    assert not waiting


def test_calls_without_a_key_run_alone() -> None:
    calls = [call_of("m", key=None, begin=index) for index in range(3)]
    waiting = filled(*calls)
    assert waiting.is_full(calls[0])
    assert [taken(waiting) for _ in calls] == [[call] for call in calls]


def test_priority_decides_for_a_second_and_nobody_starves() -> None:
    usual = call_of("m", key=None, begin=10.0)
    urgent = call_of("m", key=None, begin=10.5, priority=1)
    late = call_of("m", key=None, begin=11.5, priority=1)
    patient = call_of("m", key=None, begin=9.4, priority=3)
    waiting = filled(patient, usual, urgent, late)
    assert [taken(waiting)[0] for _ in range(4)] == [urgent, usual, patient, late]


def test_priorities_of_one_key_share_a_batch_in_order_of_rank() -> None:
    calls = [call_of("m", begin=index / 10, priority=priority) for index, priority in enumerate((3, 0, 1, 2, 1))]
    assert taken(filled(*calls)) == sorted(calls, key=lambda call: call.rank)


@pytest.mark.parametrize(("priority", "behind"), [(0, 0.0), (1, -1.0), (2, 0.0), (3, 1.0), (10**9, 8.0)])
def test_what_a_priority_means(priority: int, behind: float) -> None:
    assert call_of("m", priority=priority).behind == behind


def test_a_batch_does_not_grow_beyond_what_its_deadlines_allow() -> None:
    calls = [call_of("m", begin=0, deadline=deadline) for deadline in (100.0, 3.5, 100.0, 100.0)]
    waiting = filled(*calls)
    assert taken(waiting, now=0.0, per_row=1.0) == calls[:3]  # 4 rows take 4 s, too long for the second
    assert taken(waiting, now=0.0, per_row=1.0) == calls[3:]


def test_a_call_that_is_late_anyway_does_not_hold_up_the_queue() -> None:
    late, other = call_of("m", begin=0, deadline=1.0), call_of("m", begin=1)
    waiting = filled(late, other)
    assert taken(waiting, now=5.0, per_row=1.0) == [late]
    assert taken(waiting, now=5.0, per_row=1.0) == [other]


def test_what_does_not_wait_any_more_is_not_taken() -> None:
    calls = [call_of("m", begin=index, key=key) for index, key in enumerate(["x", "x", "y"])]
    waiting = filled(*calls)
    waiting.discard(calls[0])
    waiting.discard(calls[0])
    waiting.discard(call_of("m", key="z"))
    assert (len(waiting), waiting.rows) == (2, 2)
    assert taken(waiting) == [calls[1]]
    waiting.discard(calls[2])
    assert waiting.first() is None


def test_what_arrived_together_is_split_by_key_and_size() -> None:
    calls = [call_of("m", key=key, rows=rows, max_rows=4) for key, rows in [("x", 3), ("y", 1), ("x", 2), ("x", 2)]]
    calls += [call_of("m", key=None, rows=1) for _ in range(2)]
    assert batches_of(calls) == [[calls[0]], [calls[1]], [calls[2], calls[3]], [calls[4]], [calls[5]]]


def test_no_deadline_is_no_limit() -> None:
    calls = [call_of("m", deadline=math.inf) for _ in range(5)]
    assert taken(filled(*calls), now=0.0, per_row=1e9) == calls
