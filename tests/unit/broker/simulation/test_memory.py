from __future__ import annotations

from tiercel.broker.scheduling.interface import CurvePoint, PastRun
from tiercel.broker.simulation.memory import MAX_POINTS, MAX_RUNS, MAX_WORKLOADS, Memory, best_so_far
from tiercel.core.jobs import Direction, Observation


def run(value: float) -> tuple[CurvePoint, ...]:
    return (CurvePoint(1.0, value),)


def test_only_what_is_better_than_before_is_kept_and_the_end() -> None:
    values = [0.5, 0.4, 0.7, 0.6]
    reports = [Observation(float(n), n, value, float(n)) for n, value in enumerate(values, start=1)]
    assert best_so_far(Direction.MAX, reports) == (CurvePoint(1.0, 0.5), CurvePoint(3.0, 0.7), CurvePoint(4.0, 0.7))
    assert best_so_far(Direction.MIN, reports) == (CurvePoint(1.0, 0.5), CurvePoint(2.0, 0.4), CurvePoint(4.0, 0.4))
    assert best_so_far(Direction.MAX, []) == ()


def test_long_runs_are_thinned_and_keep_both_ends() -> None:
    reports = [Observation(float(n), n, n / 1000, float(n)) for n in range(1000)]
    points = best_so_far(Direction.MAX, reports)
    assert len(points) == MAX_POINTS
    assert (points[0].cpu_seconds, points[-1].cpu_seconds) == (0.0, 999.0)


def test_the_latest_runs_of_the_latest_workloads_are_remembered() -> None:
    memory = Memory({"known": (PastRun(run(0.1)),)})
    for number in range(MAX_RUNS + 2):
        memory.add("a", f"job{number}", run(number))
    assert [past.curve[0].value for past in memory.by_workload()["a"]] == list(range(2, MAX_RUNS + 2))
    assert memory.by_workload()["known"] == (PastRun(run(0.1)),)
    for number in range(MAX_WORKLOADS - 1):
        memory.add(f"w{number}", "job", run(0.5))
    assert "known" not in memory.by_workload()
    assert "a" in memory.by_workload()


def test_a_job_is_remembered_once_and_what_was_shown_does_not_change() -> None:
    memory = Memory({})
    memory.add("a", "job", run(0.1))
    shown = memory.by_workload()
    memory.add("a", "job", run(0.2))
    memory.add("a", "silent", ())
    assert shown["a"] == (PastRun(run(0.1)),)
    assert memory.by_workload()["a"] == (PastRun(run(0.2)),)
    assert memory.by_workload() is memory.by_workload()
