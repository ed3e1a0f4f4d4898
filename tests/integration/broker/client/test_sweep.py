"""Trials of a sweep that are stopped, that fail, and a study that cannot be gone on with; with the real Optuna."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from testing import jobs_service as wire
from testing.jobs_service import Script
from tiercel import Client
from tiercel.broker.client.spec_file import parse_spec
from tiercel.broker.client.sweeps.ranges import Integers, Numbers, Range
from tiercel.broker.client.sweeps.running import Sweep, SweepPlan, TrialEnd
from tiercel.broker.client.sweeps.stopping import Halving
from tiercel.broker.client.sweeps.study import Study
from tiercel.core.errors import InvalidSpecError, SetupError, TiercelError
from tiercel.core.jobs import Direction
from tiercel.v1 import jobs_pb2

SPEC = parse_spec({"endpoint": "digits", "module": "digits.train", "metric": "accuracy", "tiers": [0.9]})
RANGES: dict[str, Range] = {"lr": Numbers(0.001, 1.0, log=True)}
PLAN = SweepPlan("digits", 3, 3, Halving(first_epoch=3, factor=3))


def opened(folder: Path, ranges: dict[str, Range] = RANGES, direction: Direction = Direction.MAX) -> Study:
    return Study(folder / "s.db", "digits", direction, ranges, "tpe")


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    """Three trials that an earlier life of the sweep began."""
    with opened(tmp_path) as study:
        for number in range(3):
            study.keep_job(study.ask().number, f"j{number}")
        yield study


async def test_those_that_fall_behind_are_cancelled_and_told_as_stopped(
    client: Client, script: Script, study: Study
) -> None:
    values = {"j0": 0.5, "j1": 0.7, "j2": 0.6}
    script.jobs = {job_id: wire.job(job_id, best=value) for job_id, value in values.items()}
    script.events = [wire.progress_made(3, value, job_id) for job_id, value in values.items()]
    ends: list[TrialEnd] = []

    def show(end: TrialEnd) -> None:
        ends.append(end)
        if len(ends) == 2:
            script.jobs["j1"].state = jobs_pb2.JOB_STATE_COMPLETED

    await Sweep(client, SPEC, PLAN, study, show, pause_seconds=0.01).run()
    assert [(end.number, end.state) for end in ends] == [(0, "stopped"), (2, "stopped"), (1, "completed")]
    assert "epoch 3" in ends[0].reason
    assert [trial.value for trial in study.trials()] == [0.5, 0.7, 0.6]
    best = study.best()
    assert best is not None
    assert best.number == 1
    assert script.submitted == []


async def test_a_sweep_whose_first_trials_all_fail_ends_and_says_why(
    client: Client, script: Script, study: Study
) -> None:
    script.jobs = {f"j{n}": wire.job(f"j{n}", state=jobs_pb2.JOB_STATE_FAILED, reason="exit code 1") for n in range(3)}
    with pytest.raises(TiercelError, match=r"first 3 trials all failed.*exit code 1.*tiercel logs j2"):
        await Sweep(client, SPEC, PLAN, study, lambda _: None, pause_seconds=0.01).run()
    assert study.unfinished() == []
    assert study.best() is None


async def test_a_sweep_that_gives_up_leaves_no_trial_behind(client: Client, script: Script, study: Study) -> None:
    study.keep_job(study.ask().number, "j3")
    script.jobs = {f"j{n}": wire.job(f"j{n}", state=jobs_pb2.JOB_STATE_FAILED, reason="exit code 1") for n in range(3)}
    script.jobs["j3"] = wire.job("j3")
    with pytest.raises(TiercelError, match="first 3 trials all failed"):
        await Sweep(client, SPEC, replace(PLAN, at_once=4), study, lambda _: None, pause_seconds=0.01).run()
    assert script.jobs["j3"].state == jobs_pb2.JOB_STATE_CANCELLED
    assert study.unfinished() == []


def test_a_study_goes_on_with_the_same_ranges_alone(study: Study, tmp_path: Path) -> None:
    with opened(tmp_path) as again:
        assert (again.id, again.unfinished()) == (study.id, study.unfinished())
        study.interrupted(2)
        assert again.count() == 2
    for ranges, direction in (({"lr": Integers(1, 2)}, Direction.MAX), (RANGES, Direction.MIN)):
        with pytest.raises(InvalidSpecError, match="study: "):
            opened(tmp_path, dict(ranges), direction)
    (tmp_path / "s.db").write_bytes(b"no database" * 1000)
    with pytest.raises(SetupError, match="move it away"):
        opened(tmp_path)


@pytest.mark.parametrize("name", ["", "../x", "A", "a/b", "x" * 56])
def test_a_name_that_is_no_name_of_a_file_is_refused(name: str) -> None:
    with pytest.raises(InvalidSpecError, match="study: "):
        SweepPlan(name, 3, 3, Halving())
