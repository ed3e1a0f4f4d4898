from __future__ import annotations

import dataclasses

import pytest

from benchmarks.scheduling.arms import ARMS
from benchmarks.scheduling.fidelity import compare, fidelity, replay
from benchmarks.scheduling.outcome import RunOutcome, Served
from benchmarks.scheduling.recordings import Recordings
from tests.support.scheduling_runs import job_outcome, recording, run_outcome

KNOWN = Recordings({("cnn-small", seed): recording(training_seed=seed) for seed in range(3)})


def run_of(*reached: float, arm: str = "fair") -> RunOutcome:
    jobs = [job_outcome(f"cnn-small-{number}", reached=(at, at + 1.0)) for number, at in enumerate(reached)]
    return run_outcome(arm, jobs)


def test_jobs_with_a_core_each_reach_tiers_when_they_were_recorded_to() -> None:
    result = replay(run_of(3.0, 3.0), ARMS["fair"], KNOWN, 2.0)
    assert [job.time_to_tier(1) for job in result.jobs] == pytest.approx([3.0, 3.0], abs=0.1)
    assert compare(run_of(3.0, 1.5), result) == pytest.approx([0.0, 1.0], abs=0.1)


def test_what_shares_cores_takes_longer() -> None:
    alone = replay(run_of(3.0), ARMS["fair"], KNOWN, 1.0)
    together = replay(run_of(3.0, 3.0), ARMS["fair"], KNOWN, 1.0)
    assert together.mean_time_to_tier(1) > 1.5 * alone.mean_time_to_tier(1)


@pytest.mark.parametrize("arm", ["utility-history", "srpt-oracle", "flowcon-literal"])
def test_arms_are_replayed_with_what_they_know(arm: str) -> None:
    found = fidelity([run_of(3.0, 3.0, arm=arm)], KNOWN, 2.0)
    assert (found.runs, len(found.errors)) == (1, 2)
    assert found.median is not None
    assert found.p90 is not None
    assert found.median <= found.p90


def test_runs_under_load_without_recordings_or_without_an_end_are_left_out() -> None:
    loaded = dataclasses.replace(run_of(3.0), served=Served((), (), (), 0, 0, None))
    unfinished = dataclasses.replace(run_of(3.0), timed_out=True)
    unknown = run_outcome(jobs=[job_outcome(kind="gru-small")])
    found = fidelity([loaded, unfinished, unknown], KNOWN, 2.0)
    assert (found.runs, found.median, found.p90, found.errors) == (0, None, None, ())
