"""Live runs, made up, against the simulator."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.scheduling.fidelity import (
    compare,
    foretold,
    is_comparable,
    replayed,
    simulate_again,
    simulate_from_recordings,
)
from benchmarks.scheduling.outcome import Point, RunOutcome, Served
from benchmarks.scheduling.recordings import Recordings
from tests.support.scheduling_runs import job_outcome, recording, run_outcome

KNOWN = Recordings({("cnn-small", seed): recording(training_seed=seed) for seed in range(3)})


def run_of(*reached: float, arm: str = "fair") -> RunOutcome:
    jobs = [job_outcome(f"cnn-small-{number}", reached=(at, at + 1.0)) for number, at in enumerate(reached)]
    return run_outcome(arm, jobs)


def test_jobs_with_a_core_each_reach_tiers_when_they_were_recorded_to() -> None:
    result = simulate_from_recordings(run_of(3.0, 3.0), KNOWN, 2.0)
    assert [job.time_to_tier(1) for job in result.jobs] == pytest.approx([3.0, 3.0], abs=0.1)
    assert compare(run_of(3.0, 1.5), result) == pytest.approx([0.0, 1.0], abs=0.1)


def test_what_shares_cores_takes_longer() -> None:
    alone = simulate_from_recordings(run_of(3.0), KNOWN, 1.0)
    together = simulate_from_recordings(run_of(3.0, 3.0), KNOWN, 1.0)
    assert together.mean_time_to_tier(1) > 1.5 * alone.mean_time_to_tier(1)


def test_a_run_is_replayed_with_the_cpu_seconds_of_its_own_jobs() -> None:
    job = job_outcome(reached=(4.0, 6.0), cpu=9.0)
    points = tuple(Point(at, point.value, at) for at, point in zip((2.0, 4.0, 6.0), job.points, strict=True))
    live = run_outcome(jobs=[dataclasses.replace(job, points=points)])
    result = simulate_again(live, KNOWN, 2.0)
    assert compare(live, result) == [pytest.approx(0.0)]
    assert result.jobs[0].finished_at == pytest.approx(9.0), "what came after the last report is replayed too"


def test_what_else_used_the_machine_is_replayed() -> None:
    quiet, busy = run_of(2.0, 2.0), dataclasses.replace(run_of(2.0, 2.0), broker_cpu_seconds=9.0)
    slower = simulate_again(busy, KNOWN, 2.0).mean_time_to_tier(1)
    assert slower > 1.5 * simulate_again(quiet, KNOWN, 2.0).mean_time_to_tier(1)


@pytest.mark.parametrize("arm", ["utility-history", "srpt-oracle", "flowcon-literal"])
def test_arms_are_simulated_with_what_they_know(arm: str) -> None:
    for found in (
        foretold([run_of(3.0, 3.0, arm=arm)], KNOWN, 2.0),
        replayed([run_of(3.0, 3.0, arm=arm)], KNOWN, 2.0),
    ):
        assert (found.runs, len(found.errors)) == (1, 2)
        assert found.median is not None
        assert found.p90 is not None
        assert found.median <= found.p90


def test_runs_that_cannot_be_compared_are_left_out() -> None:
    loaded = dataclasses.replace(run_of(3.0), served=Served((), (), (), 0, 0, None))
    unfinished = dataclasses.replace(run_of(3.0), timed_out=True)
    unknown = run_outcome(jobs=[job_outcome(kind="gru-small")])
    disturbed = dataclasses.replace(run_of(3.0), foreign_cpu_seconds=2.0)
    left_out = [loaded, unfinished, unknown, disturbed]
    assert is_comparable(run_of(3.0), KNOWN, 2.0)
    assert not any(is_comparable(run, KNOWN, 2.0) for run in left_out)
    found = foretold(left_out, KNOWN, 2.0)
    assert (found.runs, found.median, found.p90, found.errors) == (0, None, None, ())
