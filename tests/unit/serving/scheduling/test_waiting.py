from __future__ import annotations

from dataclasses import dataclass

import pytest

from tiercel.serving.scheduling.waiting import Waiting


@dataclass(eq=False)
class Item:
    since: float
    useless_at: float = 100.0
    rows: int = 1


def waiting(*items: Item) -> Waiting[Item]:
    result: Waiting[Item] = Waiting(10.0 / 0.9)
    for item in items:
        result.add(item)
    return result


def sinces(items: list[Item]) -> list[float]:
    return [item.since for item in items]


def quick(_: int) -> float:
    return 1.0


def test_requests_are_taken_in_the_order_in_which_they_are_due() -> None:
    queue = waiting(Item(1.0), Item(3.0), Item(2.0))
    assert queue.first() is not None
    assert sinces(queue.take(4.0, 2, quick)) == [1.0, 2.0]
    assert sinces(queue.take(4.0, 2, quick)) == [3.0]
    assert len(queue) == 0
    assert queue.first() is None


def test_late_requests_are_served_while_no_other_waits_the_newest_first() -> None:
    queue = waiting(Item(0.0), Item(1.0), Item(8.0))
    assert queue.sweep(11.0, 0.5) == []
    assert queue.ages(11.0) == (1, 3.0, 3.0, 3.0)
    assert sinces(queue.take(11.0, 8, quick)) == [8.0]
    assert queue.ages(11.0) == (2, 11.0, 11.0, 10.0)
    assert sinces(queue.take(11.0, 8, quick)) == [1.0, 0.0]


def test_a_run_leaves_those_it_would_answer_too_late_if_it_can_answer_others_in_time() -> None:
    queue = waiting(Item(0.0), Item(1.0), Item(5.0), Item(6.0))
    assert sinces(queue.take(8.0, 4, lambda rows: 3.0 + rows)) == [5.0, 6.0]
    assert sinces(queue.take(8.0, 4, quick)) == [1.0, 0.0]


def test_a_run_that_can_answer_nobody_in_time_takes_them_in_order() -> None:
    assert sinces(waiting(Item(0.0), Item(1.0)).take(5.0, 2, lambda _: 20.0)) == [0.0, 1.0]


def test_requests_are_given_up_once_an_answer_is_of_no_use() -> None:
    hopeless, other = Item(0.0, useless_at=12.0), Item(0.5, useless_at=15.0)
    queue = waiting(hopeless, other)
    assert queue.sweep(11.0, 0.5) == []
    assert queue.sweep(11.9, 0.5) == [hopeless]
    assert len(queue) == 1


@pytest.mark.parametrize("late", [False, True])
def test_rows_count_and_only_what_fits_goes_along(late: bool) -> None:
    one, two, three = Item(1.0, rows=2), Item(2.0, rows=3), Item(3.0, rows=1)
    queue = waiting(one, two, three)
    now = 20.0 if late else 4.0
    queue.sweep(now, 0.0)
    assert queue.ages(now).rows == 6
    first = three if late else one
    assert queue.take(now, 4, quick, lambda item: item is not two) == ([three, one] if late else [one, three])
    assert first not in queue.take(now, 4, quick)
    assert len(queue) == 0


def test_a_request_larger_than_the_batch_runs_alone() -> None:
    large = Item(1.0, rows=9)
    assert waiting(large, Item(2.0)).take(4.0, 4, quick) == [large]


def test_only_what_may_be_together_with_the_first_goes_along() -> None:
    queue = waiting(Item(1.0), Item(2.0, rows=2), Item(3.0))
    assert sinces(queue.take(4.0, 8, quick, together=lambda one, other: one.rows == other.rows)) == [1.0, 3.0]
    assert sinces(queue.take(4.0, 8, quick)) == [2.0]


def test_nobody_is_left_behind_for_one_whom_this_run_may_not_answer() -> None:
    queue = waiting(Item(0.0), picky := Item(6.0))
    assert sinces(queue.take(8.0, 4, lambda _: 4.0, lambda item: item is not picky)) == [0.0]


def test_all_can_be_sent_away_at_once() -> None:
    queue = waiting(Item(0.0), Item(19.0))
    queue.sweep(20.0, 0.0)
    assert sinces(queue.clear()) == [19.0, 0.0]
    assert len(queue) == 0


def test_one_that_went_away_is_not_taken() -> None:
    gone = Item(1.0)
    queue = waiting(gone, Item(2.0))
    assert queue.discard(gone)
    assert not queue.discard(gone)
    assert sinces(queue.take(4.0, 4, quick)) == [2.0]


def test_for_another_objective_it_is_seen_anew_who_is_late() -> None:
    queue = waiting(Item(0.0), Item(2.0), Item(8.0))
    queue.sweep(11.0, 0.5)
    patient = queue.aimed_at(100.0)
    assert patient.sweep(11.0, 0.5) == []
    assert (patient.objective, len(patient), patient.ages(11.0).rows) == (100.0, 3, 3)
    assert sinces(patient.take(11.0, 8, quick)) == [0.0, 2.0, 8.0]
    assert len(queue) == 3, "the first one is left as it was"
