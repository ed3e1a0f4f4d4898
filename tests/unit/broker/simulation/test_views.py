"""What policies see of a simulated job is what the live broker's actor shows of the same job."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import pytest

from testing.clock import ManualClock
from testing.simulation import steps
from tiercel.broker.actors.job import JobActor, observations_of
from tiercel.broker.lifecycle import machine
from tiercel.broker.lifecycle.job_events import (
    Announce,
    Assigned,
    CancelRequested,
    JobInput,
    MoveOrdered,
    Reported,
    RunIsAlive,
)
from tiercel.broker.simulation.curves import Trajectory
from tiercel.broker.simulation.running import SimulatedJob
from tiercel.broker.simulation.workload import PlannedJob
from tiercel.core.events import JobEvent, ProgressMade
from tiercel.core.jobs import Job
from tiercel.core.moments import Moment
from tiercel.core.shares import Share

WORKLOAD = steps(0.5, 0.9)
HALF = Share(0.5, reason="half")
LIFE: list[JobInput] = [
    Assigned("node1", HALF, 1),
    RunIsAlive("job-1"),
    Reported("job-1", 1, 1, {"metric": 0.3}, 2.0, 2.0),
    MoveOrdered("node2", Share(0.25, reason="a quarter"), 2),
    CancelRequested(),
]


def grown(events: list[JobInput]) -> tuple[Job, list[JobEvent]]:
    job, _ = machine.create("job", "tenant", WORKLOAD.spec("name", "endpoint"), 0.0)
    news = []
    for event in events:
        job, effects = machine.handle(job, event, Moment.of_one_clock(3.0))
        changes = [effect.change for effect in effects if isinstance(effect, Announce)]
        news += [JobEvent(1, job.id, job.tenant, 2.0, change) for change in changes if isinstance(change, ProgressMade)]
    return job, news


@pytest.mark.parametrize("events", [LIFE[:length] for length in range(len(LIFE) + 1)], ids=len)
def test_views_are_those_of_the_actor(events: list[JobInput]) -> None:
    job, news = grown(events)
    observations = observations_of(news)
    nothing = cast("Any", None)
    live = cast("Any", JobActor(job, nothing, ManualClock(), nothing, observations=observations))._view()
    ahead = Trajectory((1.0, 2.0), (0.5, 0.9))
    sim = SimulatedJob(PlannedJob(0.0, WORKLOAD), job, ahead, (0, 1), run_cpu=job.cpu_seconds)
    sim.observations = observations
    shown = sim.present(3.0)
    assert live is not None
    assert shown == dataclasses.replace(live, workload=shown.workload, similar=shown.similar)
