"""What the runs of a job found around them, and which run found what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.jobs import LOST, SHARE, after, assigned, new_job
from tiercel.broker.lifecycle.environment import MAX_ENVIRONMENTS, environment_of
from tiercel.broker.lifecycle.job_events import Assigned, JobInput, RunExited, RunIsAlive
from tiercel.core.runs import RunEnvironment
from tiercel.core.storage import from_json, to_json

IMAGE = "sha256:" + "1" * 64


def run_with(number: int, environment: str, image_id: str = "") -> tuple[JobInput, ...]:
    """A run from its placement to its loss."""
    run_id = f"j1-{number}"
    return (
        Assigned("n1", SHARE, number),
        RunIsAlive(run_id, environment=environment, image_id=image_id),
        RunExited(run_id, None, lost=True),
    )


def test_each_run_has_what_its_node_said_of_it() -> None:
    job = after(new_job(), *run_with(1, "aa" * 12), *run_with(2, "aa" * 12), *run_with(3, "bb" * 12, IMAGE))
    assert [environment_of(job, number).key for number in (1, 2, 3)] == ["aa" * 12, "aa" * 12, "bb" * 12]
    assert (environment_of(job, 2).image_id, environment_of(job, 3).image_id) == ("", IMAGE)
    assert len(job.environments) == 2
    assert from_json(type(job), to_json(job)).environments == job.environments


def test_a_run_that_is_told_of_without_it_keeps_what_was_said_before() -> None:
    job = after(new_job(), assigned(), RunIsAlive("j1-1", environment="aa" * 12))
    assert environment_of(after(job, RunIsAlive("j1-1"), LOST), 1).key == "aa" * 12


def test_a_job_without_packages_has_none() -> None:
    job = after(new_job(), *run_with(1, ""))
    assert job.environments == ()
    assert environment_of(job, 1) == RunEnvironment(0)


@pytest.mark.parametrize("said", ["x", "../../etc", "AA" * 12, "a" * 65, "a" * 7])
def test_what_cannot_be_a_key_is_not_taken(said: str) -> None:
    assert after(new_job(), *run_with(1, said, said)).environments == ()


def test_what_is_kept_is_bounded() -> None:
    job = new_job()
    for number in range(1, MAX_ENVIRONMENTS + 4):
        job = after(job, *run_with(number, f"{number:024x}"))
        job = replace(job, earlier=replace(job.earlier, lost_at=()))
    assert len(job.environments) == MAX_ENVIRONMENTS
    assert environment_of(job, MAX_ENVIRONMENTS + 3).key == f"{MAX_ENVIRONMENTS + 3:024x}"
    assert environment_of(job, 1) == RunEnvironment(0)
