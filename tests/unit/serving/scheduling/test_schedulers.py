"""Decisions worked out by hand. Times in seconds; ``slow`` does 10 rows a second alone, ``fast`` 100."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tiercel.serving.scheduling import table
from tiercel.serving.scheduling.aimd import AimdScheduler
from tiercel.serving.scheduling.heuristic import HeuristicScheduler
from tiercel.serving.scheduling.interface import BATCHES, Choice, Ended, Profile, View, WorkerKind
from tiercel.serving.scheduling.static import StaticScheduler
from tiercel.serving.scheduling.table import TableScheduler
from tiercel.serving.scheduling.utility import utility

SLOW = Profile("slow", 0.9, tuple(0.02 + 0.08 * batch for batch in BATCHES))
FAST = Profile("fast", 0.6, tuple(0.005 + 0.005 * batch for batch in BATCHES))
CALM = View((WorkerKind((SLOW, FAST), (0.0,)),), 0.5, utility("deadline"), 1, 0.0, 0.0, 0.0, 1.0, 1.0)


def one(profiles: tuple[Profile, ...]) -> tuple[WorkerKind, ...]:
    return (WorkerKind(profiles, (0.0,)),)


def test_static_always_takes_its_variant_with_the_largest_batch_within_the_objective() -> None:
    assert StaticScheduler().decide(CALM) == Choice(0, 4)  # 0.02 + 0.08 * 4 = 0.34; 8 rows take 0.66
    assert StaticScheduler("fast").decide(CALM) == Choice(1, 64)
    assert StaticScheduler("gone").decide(CALM) == Choice(0, 4)


def test_heuristic_takes_the_accurate_variant_alone_while_it_keeps_up() -> None:
    assert HeuristicScheduler().decide(CALM) == Choice(0, 1)


def test_heuristic_takes_no_less_than_a_workers_share_of_what_waits() -> None:
    assert HeuristicScheduler().decide(replace(CALM, count=4)) == Choice(0, 4)
    assert HeuristicScheduler().decide(replace(CALM, kinds=(WorkerKind((SLOW, FAST), (0.0, 0.0)),), count=4)) == Choice(
        0, 2
    )


def test_heuristic_takes_the_fast_variant_when_the_accurate_one_would_be_late() -> None:
    assert HeuristicScheduler().decide(replace(CALM, oldest=0.42)) == Choice(1, 1)


def test_heuristic_takes_the_fast_variant_when_those_who_come_meanwhile_would_be_late() -> None:
    # A run of the accurate one takes 0.1 s; 140 a second are 14 rows then, 0.07 s of the fast one: in time. With most
    # of the time taken by one that waited, it is not.
    busy = replace(CALM, rate=140.0, recent_rate=140.0)
    assert HeuristicScheduler().decide(busy) == Choice(0, 1)
    assert HeuristicScheduler().decide(replace(busy, oldest=0.42)) == Choice(1, 1)
    assert HeuristicScheduler().decide(replace(busy, count=4, objective=0.36)) == Choice(1, 4)


def test_heuristic_runs_the_fast_variant_at_full_size_in_overload() -> None:
    overload = replace(CALM, rate=500.0, recent_rate=500.0, count=3)
    assert HeuristicScheduler().decide(overload) == Choice(1, 64)


def test_heuristic_runs_what_earns_most_in_overload_though_another_is_faster() -> None:
    # Neither keeps up: accuracy times rows per second is what counts.
    nearly = Profile("nearly", 0.55, tuple(each * 0.75 for each in FAST.seconds))
    overload = replace(CALM, kinds=one((FAST, nearly)), rate=300.0, recent_rate=300.0, count=64)
    assert HeuristicScheduler().decide(overload) == Choice(1, 64)
    barely = replace(overload, kinds=one((FAST, replace_accuracy(nearly, 0.3))))
    assert HeuristicScheduler().decide(barely) == Choice(0, 64)


def replace_accuracy(profile: Profile, accuracy: float) -> Profile:
    return Profile(profile.name, accuracy, profile.seconds)


def test_heuristic_buys_no_accuracy_that_the_planned_variant_could_not_make_up_for() -> None:
    middle = Profile("middle", 0.8, tuple(0.01 + 0.01 * batch for batch in BATCHES))
    # The middle one keeps up with 60 a second and is the plan. A run of the slow one leaves 6 rows and those that wait,
    # which the middle one cannot make up for in time, though the fast one could.
    view = replace(CALM, kinds=one((SLOW, middle, FAST)), rate=60.0, recent_rate=60.0, count=4)
    assert HeuristicScheduler().decide(view) == Choice(1, 4)
    assert HeuristicScheduler().decide(replace(view, count=1)) == Choice(0, 1)


def test_heuristic_asks_for_capacity_where_delay_costs_from_the_start() -> None:
    linear = replace(CALM, utility=utility("linear"), rate=11.5, recent_rate=11.5)
    # 1.1 * 11.5 rows a second are more than the accurate variant can ever do (1 / 0.08).
    assert HeuristicScheduler().decide(linear) == Choice(1, 1)
    assert HeuristicScheduler().decide(replace(linear, rate=5.0, recent_rate=5.0)) == Choice(0, 1)


def faster(profile: Profile, factor: float) -> Profile:
    return Profile(profile.name, profile.accuracy, tuple(each / factor for each in profile.seconds))


def two_kinds(other_is_free_in: float, factor: float = 10.0) -> tuple[WorkerKind, ...]:
    """A free worker, and another one that is so many times as fast."""
    quick = faster(SLOW, factor), faster(FAST, factor)
    return WorkerKind((SLOW, FAST), (0.0,)), WorkerKind(quick, (other_is_free_in,))


def test_all_but_the_heuristic_take_the_free_worker_that_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "solve", lambda *_: np.zeros((len(table.COUNTS), len(table.AGES)), np.int64))
    view = replace(CALM, kinds=two_kinds(0.0))
    for scheduler in (StaticScheduler("fast"), AimdScheduler(), TableScheduler()):
        decision = scheduler.decide(view)
        assert decision is not None
        assert decision.kind == 1


def test_heuristic_waits_for_a_faster_worker_that_is_accurate_in_time() -> None:
    # 0.42 s have gone of 0.45: only the fast variant is in time on the free one, in 0.01 s.
    late = replace(CALM, oldest=0.42)
    assert HeuristicScheduler().decide(replace(late, kinds=two_kinds(0.015))) is None
    assert HeuristicScheduler().decide(replace(late, kinds=two_kinds(0.025))) == Choice(1, 1, 0)


def test_heuristic_does_not_wait_for_workers_that_could_not_keep_up_alone() -> None:
    view = replace(CALM, utility=utility("linear"), objective=20.0, kinds=two_kinds(0.015, 2.0), count=2)
    assert HeuristicScheduler().decide(view) is None, "0.105 s there, 0.18 s here"
    # The accurate variant does at most 12.5 rows a second here and 25 there.
    assert HeuristicScheduler().decide(replace(view, rate=25.0, recent_rate=25.0)) == Choice(0, 2, 0)


def test_heuristic_leaves_a_request_to_another_worker_where_the_free_one_is_late() -> None:
    # Both variants are late on the free one, and the other one has yet to end something.
    assert HeuristicScheduler().decide(replace(CALM, oldest=0.445, kinds=two_kinds(0.002))) is None
    gone = replace(CALM, oldest=0.6, kinds=two_kinds(0.002))
    assert HeuristicScheduler().decide(gone) == Choice(1, 64, 0), "late anyway"


def test_aimd_grows_by_a_row_and_shrinks_by_a_quarter() -> None:
    scheduler = AimdScheduler()
    assert scheduler.decide(CALM) == Choice(0, 1)
    for _ in range(3):
        scheduler.ended(Ended("slow", 1, 0.1))
    assert scheduler.decide(CALM) == Choice(0, 4)
    scheduler.ended(Ended("slow", 4, 0.6))  # late: 3 rows, and on to the fast one
    assert scheduler.decide(CALM) == Choice(1, 1)
    for _ in range(32):
        scheduler.ended(Ended("fast", 1, 0.1))
    assert scheduler.decide(CALM) == Choice(0, 2)


def test_table_is_accurate_when_there_is_time_and_fast_when_there_is_none() -> None:
    scheduler = TableScheduler()
    assert scheduler.decide(CALM) == Choice(0, 1)
    decision = scheduler.decide(replace(CALM, rate=180.0, recent_rate=180.0, count=16, oldest=0.3))
    assert decision is not None
    assert decision.variant == 1


class Solver(Executor):
    """Solves nothing before it is let go on."""

    def __init__(self) -> None:
        self.begun: list[tuple[Future[Any], Callable[..., Any]]] = []

    def submit(self, work: Callable[..., Any], /, *_: Any, **__: Any) -> Future[Any]:
        self.begun.append((Future(), work))
        return self.begun[-1][0]

    def go_on(self) -> None:
        for future, work in self.begun:
            if not future.done():
                future.set_result(work())


def test_the_heuristic_decides_while_a_table_is_solved_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    always_fast = np.full((len(table.COUNTS), len(table.AGES)), len(BATCHES))
    monkeypatch.setattr(table, "solve", lambda *_: always_fast)
    solver = Solver()
    scheduler = TableScheduler(solver)
    only_slow = replace(CALM, kinds=one((SLOW,)))
    for _ in range(2):
        assert scheduler.decide(CALM) == HeuristicScheduler().decide(CALM) == Choice(0, 1)
        assert scheduler.decide(only_slow) == Choice(0, 1)
    assert len(solver.begun) == 2, "each is solved once"
    solver.go_on()
    assert [scheduler.decide(view) for view in (CALM, only_slow, CALM)] == [Choice(1, 1)] * 3
    assert len(solver.begun) == 2


@pytest.mark.parametrize("rows", [1, 3])
def test_a_variant_without_batches_is_asked_for_none(rows: int) -> None:
    single = replace(CALM, kinds=one((Profile("one", 0.9, (0.1,)),)), count=rows)
    for scheduler in (StaticScheduler(), HeuristicScheduler(), AimdScheduler(), TableScheduler()):
        assert scheduler.decide(single) == Choice(0, 1)
