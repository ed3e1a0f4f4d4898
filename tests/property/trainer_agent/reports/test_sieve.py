"""However often a script reports: few reports go on, and none is lost that the job's life depends on."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from tiercel.trainer_agent.reports.kept import KeptReports
from tiercel.trainer_agent.reports.sieve import (
    BYTES_AT_ONCE,
    BYTES_PER_SECOND,
    REPORTS_AT_ONCE,
    REPORTS_PER_SECOND,
    Goal,
    ReportSieve,
)
from tiercel.v1 import nodes_pb2, trainer_pb2

VALUES = st.lists(st.floats(-10, 10) | st.just(math.nan), max_size=60)
GOALS = st.builds(
    Goal,
    metric=st.just("loss"),
    smaller_is_better=st.booleans(),
    targets=st.lists(st.floats(-10, 10), max_size=4).map(tuple),
)


def report(sequence: int, value: float, **more: float) -> trainer_pb2.TrainerReport:
    return trainer_pb2.TrainerReport(sequence=sequence, metrics={"loss": value, **more})


def merit(goal: Goal, value: float) -> float:
    return goal.merit([("loss", value)])


def reaching(goal: Goal, values: list[float]) -> set[int]:
    """Numbers of the reports that are the first to reach a target."""
    numbers = set()
    for target in goal.targets:
        reached = (number for number, value in enumerate(values, 1) if merit(goal, value) >= merit(goal, target))
        numbers |= set(itertools.islice(reached, 1))
    return numbers


def best_of(goal: Goal, values: list[float]) -> float:
    return max((merit(goal, value) for value in values if not math.isnan(value)), default=-math.inf)


@given(GOALS, VALUES, st.sampled_from([0, 220]))
def test_what_reaches_a_tier_goes_on_at_once_and_the_best_and_the_latest_in_the_end(
    goal: Goal, values: list[float], worn_out: int
) -> None:
    sieve = ReportSieve(goal, 0.0)
    for number in range(worn_out):  # the more, the less goes on of what follows
        sieve.ingest(report(number, merit(goal, -20.0)), 0.0)
    sieve.release(0.0, at_once=True)
    passed_on = []
    for number, value in enumerate(values, 1):
        due = sieve.ingest(report(worn_out + number, value), 0.0)
        passed_on += due
        if number in reaching(goal, values):
            assert worn_out + number in [one.sequence for one in due]
    waiting = sieve.release(0.0, at_once=True)
    assert len(waiting) <= 2
    passed_on += waiting
    numbers = [one.sequence - worn_out for one in passed_on]
    assert numbers == sorted(set(numbers))
    assert best_of(goal, values) == best_of(goal, [one.metrics["loss"] for one in passed_on])
    if values:
        assert numbers[-1] == len(values)
    assert sieve.seconds_until_due(0.0) is None


def test_reports_without_pause_go_on_so_many_a_second_and_so_many_bytes_a_minute() -> None:
    for wide, seconds in ((0, 30), (60, 60)):
        more = {f"{'x' * 50}{number}": 1.0 for number in range(wide)}
        sieve = ReportSieve(Goal("loss", smaller_is_better=True, targets=(0.1,)), 0.0)
        passed_on = []
        for number in range(50 * seconds):
            passed_on += sieve.ingest(report(number, 1.0, **more), number / 50)
        size = passed_on[0].ByteSize()
        assert len(passed_on) <= REPORTS_AT_ONCE + seconds * REPORTS_PER_SECOND + 2
        assert len(passed_on) * size <= BYTES_AT_ONCE + seconds * BYTES_PER_SECOND + 2 * size
        assert sieve.left_out >= 50 * seconds - len(passed_on) - 2
        due = sieve.seconds_until_due(seconds)
        assert due is not None
        assert due < 1.0


def test_the_end_of_a_training_goes_on_at_once_and_only_once_out_of_turn() -> None:
    sieve = ReportSieve(Goal("loss", smaller_is_better=True, targets=()), 0.0)
    for sequence in range(1, 1000):
        sieve.ingest(report(sequence, 1.0), 0.0)
    ended = trainer_pb2.TrainerReport(sequence=1000, metrics={"loss": 2.0}, ended=True)
    assert sieve.ingest(ended, 0.0)[-1] == ended
    again = trainer_pb2.TrainerReport(sequence=1001, metrics={"loss": 2.0}, ended=True)
    assert sieve.ingest(again, 0.0) == []


@given(GOALS, VALUES, st.integers(0, 10), st.integers(0, 400))
def test_a_long_run_keeps_its_newest_reports_and_those_that_must_not_get_lost(
    goal: Goal, values: list[float], most: int, most_bytes: int
) -> None:
    kept = KeptReports(goal, limit=most, limit_bytes=most_bytes)
    for number, value in enumerate(values, 1):
        kept.add(nodes_pb2.Progress(sequence=number, metrics={"loss": value}))
    numbers = [progress.sequence for progress in kept]
    assert numbers == sorted(set(numbers))
    assert reaching(goal, values) <= set(numbers)
    assert best_of(goal, values) == best_of(goal, [progress.metrics["loss"] for progress in kept])
    others = len(numbers) - len(goal.targets) - 3  # the best, the newest, and the first that is no number
    assert others <= most
    size = nodes_pb2.Progress(sequence=1, metrics={"loss": 1.0}).ByteSize()
    assert others * size <= most_bytes
