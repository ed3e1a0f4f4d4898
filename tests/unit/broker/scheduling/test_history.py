"""What is remembered of runs: the curve of each, and the latest of each workload."""

from __future__ import annotations

import math

from tiercel.broker.scheduling.history import MAX_POINTS, History, RunCurve
from tiercel.broker.scheduling.interface import CurvePoint, PastRun
from tiercel.core.jobs import Direction, Observation
from tiercel.core.run_records import RUNS_KEPT_PER_WORKLOAD, WORKLOADS_KEPT, RunRecord


def seen(spent: float, value: float) -> Observation:
    return Observation(at=0.0, epoch=0, value=value, cpu_seconds=spent)


# --- The curve of one run ---------------------------------------------------------------------------------------------


def test_a_curve_keeps_the_best_so_far_and_the_last_report() -> None:
    reports = [seen(1, 0.3), seen(2, 0.5), seen(3, math.nan), seen(4, 0.4), seen(5, 0.6), seen(6, 0.6)]
    assert RunCurve(Direction.MAX, reports).points() == ((1, 0.3), (2, 0.5), (5, 0.6), (6, 0.6))
    assert RunCurve(Direction.MIN, reports).points() == ((1, 0.3), (6, 0.3))
    assert RunCurve(Direction.MIN).points() == ()


def test_work_never_runs_backwards() -> None:
    assert RunCurve(Direction.MAX, [seen(5, 0.1), seen(2, 0.2)]).points() == ((5, 0.1), (5, 0.2))


def test_a_long_curve_is_thinned_but_keeps_its_ends() -> None:
    curve = RunCurve(Direction.MAX, [seen(index, 1 - 1 / (1 + index)) for index in range(5_000)])
    points = curve.points()
    assert len(points) == MAX_POINTS
    assert (points[0], points[-1]) == ((0, 0.0), (4999, 1 - 1 / 5000))
    assert list(points) == sorted(points)
    flat = curve.after(seen(6_000, 0.5)).points()
    assert (len(flat), flat[-1]) == (MAX_POINTS, (6_000, 1 - 1 / 5000))
    assert curve.points() == points, "a copy leaves the original alone"


# --- Runs by workload -------------------------------------------------------------------------------------------------


def record(job_id: str, workload: str, value: float = 0.5) -> RunRecord:
    return RunRecord(job_id, workload, 0.0, ((1.0, value),))


def past(value: float) -> PastRun:
    return PastRun((CurvePoint(1.0, value),))


def test_the_latest_runs_of_the_latest_workloads_are_shown() -> None:
    history = History(runs=2, workloads=2)
    history.add(record("1", "a", 0.1), record("2", "b", 0.2), record("3", "a", 0.3), record("4", "a", 0.4))
    assert history.by_workload() == {"a": (past(0.3), past(0.4)), "b": (past(0.2),)}
    history.add(record("3", "a", 0.5))
    assert history.by_workload()["a"] == (past(0.4), past(0.5)), "one run a job, the last record of it"
    history.add(record("5", "c"))
    assert set(history.by_workload()) == {"a", "c"}
    assert history.by_workload() is history.by_workload()


def test_what_is_known_from_the_beginning_is_forgotten_like_all_else() -> None:
    history = History({"known": (past(0.1),)})
    for number in range(RUNS_KEPT_PER_WORKLOAD + 2):
        history.add(record(f"job{number}", "a", number))
    assert [run.curve[0].value for run in history.by_workload()["a"]] == list(range(2, RUNS_KEPT_PER_WORKLOAD + 2))
    assert history.by_workload()["known"] == (past(0.1),)
    history.add(*(record("job", f"w{number}") for number in range(WORKLOADS_KEPT - 1)))
    assert "known" not in history.by_workload()
    assert "a" in history.by_workload()


def test_what_was_shown_does_not_change() -> None:
    history = History()
    history.add(record("job", "a", 0.1))
    shown = history.by_workload()
    history.add(record("job", "a", 0.2))
    assert shown["a"] == (past(0.1),)
    assert history.by_workload()["a"] == (past(0.2),)
