"""Where a version comes from, of what is stored."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from math import nan

from testing.jobs import make_spec
from tiercel.broker.lifecycle.lineage import lineage_of
from tiercel.core.data_sets import DataSet
from tiercel.core.endpoints import Delivery, DeliveryState, Endpoint, Version
from tiercel.core.events import JobChange, JobEvent, ProgressMade, StateChanged
from tiercel.core.jobs import Direction, Job, JobState, Script
from tiercel.core.projects import Project
from tiercel.core.runs import RunEnvironment

SPEC = replace(
    make_spec(),
    script=Script("train.py", b"print()"),
    arguments=("--lr", "0.1"),
    env={"SEED": "7"},
    labels={"sweep": "1"},
    data=(DataSet("digits"),),
    requirements=("einops==0.8",),
    project=Project("a" * 64, "b" * 40, dirty=True),
)
JOB = Job("j", "alice", SPEC, submitted_at=100.0)
VERSION = Version(2, "j", 1, "accuracy", 0.91, 170.0, "c" * 64, Direction.MAX, node_id="n1")
ENDPOINT = Endpoint("digits", "alice", versions=(replace(VERSION, version=1, held="it is worse"), VERSION))
DELIVERY = Delivery("j-tier-1", "j", 1, 0.9, "digits", 2, DeliveryState.DELIVERED, 160.0)


def events(*changes: tuple[float, JobChange]) -> list[JobEvent]:
    return [JobEvent(number, "j", "alice", at, change) for number, (at, change) in enumerate(changes, start=1)]


def state(now: JobState) -> StateChanged:
    return StateChanged(now, "")


def made(epoch: int) -> ProgressMade:
    return ProgressMade(epoch, epoch / 100, {"accuracy": epoch / 100, "loss": 1 / (epoch + 1)}, epoch * 2.0)


def test_all_of_the_job_and_what_it_had_reported_when_the_model_was_asked_for() -> None:
    happened = events(
        (100.0, state(JobState.PENDING)),
        (101.0, state(JobState.STARTING)),
        (110.0, made(10)),
        (159.0, made(90)),
        (165.0, made(95)),
    )
    found = lineage_of(ENDPOINT, VERSION, JOB, [DELIVERY], happened)
    assert (found.job_id, found.run_id, found.node_id) == ("j", "j-1", "n1")
    assert (found.script, found.script_sha256) == ("train.py", hashlib.sha256(b"print()").hexdigest())
    assert (found.project_sha256, found.commit, found.dirty) == ("a" * 64, "b" * 40, True)
    assert (found.arguments, found.env, found.data) == (("--lr", "0.1"), {"SEED": "7"}, ("digits",))
    assert found.requirements == ("einops==0.8",)
    assert found.metrics == {"accuracy": 0.9, "loss": 1 / 91}
    assert [(point.epoch, point.seconds, point.cpu_seconds) for point in found.curve] == [
        (10, 10.0, 20.0),
        (90, 59.0, 180.0),
    ]
    assert (found.live, found.pinned, found.kept, found.held) == (True, False, True, "")


def test_the_metrics_are_those_of_the_weights_that_a_job_keeps_which_are_its_best() -> None:
    happened = events((110.0, made(90)), (120.0, made(40)), (130.0, ProgressMade(50, nan, {"accuracy": nan}, 1.0)))
    assert lineage_of(ENDPOINT, VERSION, JOB, [DELIVERY], happened).metrics == made(90).metrics
    less = replace(JOB, spec=replace(SPEC, direction=Direction.MIN))
    assert lineage_of(ENDPOINT, VERSION, less, [DELIVERY], happened).metrics == made(40).metrics
    assert lineage_of(ENDPOINT, VERSION, None, [DELIVERY], happened).metrics == made(40).metrics


def test_runs_are_told_apart_by_when_they_began() -> None:
    happened = events(
        (101.0, state(JobState.STARTING)),
        (102.0, state(JobState.STARTING)),  # its node had not heard of it
        (103.0, state(JobState.RUNNING)),
        (120.0, state(JobState.STARTING)),  # it was moved
        (121.0, state(JobState.RUNNING)),
        (162.0, state(JobState.PENDING)),
        (163.0, state(JobState.STARTING)),
    )
    assert lineage_of(ENDPOINT, VERSION, JOB, [DELIVERY], happened).run_id == "j-2"
    assert lineage_of(ENDPOINT, VERSION, JOB, [], happened).run_id == "j-3"
    moved = replace(JOB, environments=(RunEnvironment(1, "aa" * 12), RunEnvironment(2, "bb" * 12, "sha256:1")))
    found = lineage_of(ENDPOINT, VERSION, moved, [DELIVERY], happened[:3])
    assert (found.run_id, found.environment, found.image_id) == ("j-1", "aa" * 12, "")
    found = lineage_of(ENDPOINT, VERSION, moved, [DELIVERY], happened)
    assert (found.run_id, found.environment, found.image_id) == ("j-2", "bb" * 12, "sha256:1")


def test_what_is_not_known_any_more_is_empty() -> None:
    found = lineage_of(ENDPOINT, VERSION, None)
    assert (found.job_id, found.value, found.script, found.run_id, found.curve) == ("j", 0.91, "", "", ())
    assert found.submitted_at is None
    assert lineage_of(ENDPOINT, VERSION, JOB).run_id == ""


def test_a_version_that_somebody_chose_and_one_that_is_held() -> None:
    chosen = replace(ENDPOINT, live_versions={"": 1}, pinned=frozenset({""}))
    first = lineage_of(chosen, chosen.versions[0], JOB)
    assert (first.live, first.pinned, first.held) == (True, True, "it is worse")
    assert not lineage_of(chosen, VERSION, JOB).live


def test_data_that_came_from_a_url_is_told_with_what_it_was() -> None:
    url = "https://example.org/x.npz?signature=secret"
    spec = replace(JOB.spec, data=(DataSet("digits", url), DataSet("other", url, "b" * 64), DataSet("table")))
    job = replace(JOB, spec=spec, data_sha256={"digits": "a" * 64})
    assert lineage_of(ENDPOINT, VERSION, job, [DELIVERY], []).data == (
        f"digits from https://example.org/x.npz, SHA-256 {'a' * 64}",
        f"other from https://example.org/x.npz, SHA-256 {'b' * 64}",
        "table",
    )
