"""What is remembered of runs: the curve of each, and the latest of each workload."""

from __future__ import annotations

import math

from tiercel.broker.scheduling.history import DIFFERS, MAX_POINTS, History, RunCurve
from tiercel.broker.scheduling.interface import CurvePoint, JobView, PastRun, earlier_runs
from tiercel.core.jobs import Direction, Observation, Resources
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
    flat = curve.after([seen(6_000, 0.5)]).points()
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


# --- Runs of similar programs -----------------------------------------------------------------------------------------


def known_of(history: History, workload: str, *similar: str) -> tuple[PastRun, ...]:
    view = JobView("job", "alice", 0.0, Direction.MAX, (), Resources(), workload=workload, similar=similar)
    return earlier_runs(view, history.by_workload(), history.by_similar())


def test_a_program_that_never_ran_is_foretold_by_the_likest_one_that_did_with_less_certainty() -> None:
    history = History()
    curve = ((1.0, 0.5),)
    history.add(RunRecord("1", "before", 0.0, curve, similar=("train.py, rate 1", "train.py", "digits")))
    points = past(0.5).curve
    assert known_of(history, "before", "train.py, rate 1") == (PastRun(points),)
    assert known_of(history, "edited", "train.py, rate 1", "train.py", "digits") == (PastRun(points, DIFFERS[0]),)
    assert known_of(history, "edited", "train.py, rate 2", "train.py", "digits") == (PastRun(points, DIFFERS[1]),)
    assert known_of(history, "edited", "new.py, rate 2", "new.py", "digits") == (PastRun(points, DIFFERS[2]),)
    assert known_of(history, "edited", "new.py, rate 2", "new.py", "letters") == ()
    assert known_of(history, "edited") == ()
    assert sorted(DIFFERS) == list(DIFFERS)


def test_own_runs_count_before_those_of_what_is_like_it() -> None:
    history = History()
    history.add(RunRecord("1", "a", 0.0, ((1.0, 0.1),), similar=("s",)))
    history.add(RunRecord("2", "b", 0.0, ((1.0, 0.2),), similar=("s",)))
    assert known_of(history, "a", "s") == (past(0.1),)
    assert [run.curve[0].value for run in known_of(history, "c", "s")] == [0.1, 0.2]


def test_a_program_that_is_edited_for_ever_fills_nothing() -> None:
    history = History(runs=2, workloads=3)
    for edit in range(50):
        history.add(RunRecord(f"{edit}", f"w{edit}", 0.0, ((1.0, float(edit)),), similar=(f"near {edit}", "same")))
    assert len(history.by_workload()) == 3
    assert len(history.by_similar()) == 3 * len(DIFFERS)
    assert [run.curve[0].value for run in history.by_similar()["same"]] == [48.0, 49.0]


def test_records_of_before_there_was_such_a_thing_foretell_their_own_program_alone() -> None:
    history = History()
    history.add(record("1", "a"))
    assert history.by_similar() == {}
    assert known_of(history, "a", "s") == (past(0.5),)
