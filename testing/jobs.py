"""Jobs to test with."""

from __future__ import annotations

from typing import Any

from tiercel.broker.lifecycle import machine
from tiercel.broker.lifecycle.job_events import (
    Announce,
    Assigned,
    CancelRequested,
    DeliveryEnded,
    JobEffect,
    JobInput,
    Reported,
    RunExited,
    RunIsAlive,
)
from tiercel.core.events import StateChanged
from tiercel.core.jobs import Direction, Job, JobSpec, JobState, Tier
from tiercel.core.moments import Moment
from tiercel.core.runs import Run
from tiercel.core.shares import Share

AT = 1_000.0
SHARE = Share(0.5, None, "half")
CLEAN_EXIT = RunExited("j1-1", 0)
LOST = RunExited("j1-1", None, "its agent was started again", lost=True)


def make_spec(**changes: Any) -> JobSpec:
    spec: dict[str, Any] = {
        "name": "digits",
        "endpoint": "digits",
        "metric": "accuracy",
        "direction": Direction.MAX,
        "tiers": (Tier(0.8), Tier(0.9)),
        "module": "package.train",
        **changes,
    }
    return JobSpec(**spec)


def new_job(**changes: Any) -> Job:
    return machine.create("j1", "alice", make_spec(**changes), AT)[0]


def after(job: Job, *inputs: JobInput, now: float = AT + 10) -> Job:
    """The job after it was told all this."""
    return told(job, *inputs, now=now)[0]


def told(job: Job, *inputs: JobInput, now: float = AT + 10) -> tuple[Job, list[JobEffect]]:
    """The job after it was told all this, and what follows from the last of it."""
    effects: list[JobEffect] = []
    for message in inputs:
        job, last = machine.handle(job, message, Moment.of_one_clock(now))
        effects = list(last)
    return job, effects


def run_of(job: Job) -> Run:
    """The job's run, which it has."""
    assert job.run is not None
    return job.run


def report(
    value: float, *, sequence: int = 1, run_id: str = "j1-1", at: float = AT + 9, epoch: int = 1, cpu: float = 0.0
) -> Reported:
    return Reported(run_id, sequence, epoch, {"accuracy": value}, at, cpu)


def assigned(node_id: str = "n1", *, attempt: int = 1) -> Assigned:
    return Assigned(node_id, SHARE, attempt)


def running_job(**changes: Any) -> Job:
    return after(new_job(**changes), assigned(), RunIsAlive("j1-1"))


def delivered(tier: int, *, value: float = 0.85, at: float = AT + 9.5) -> DeliveryEnded:
    return DeliveryEnded(tier, tier, value, at)


def failed(tier: int) -> DeliveryEnded:
    return DeliveryEnded(tier, None, None, AT + 9.5, "the model does not export")


def states(effects: list[JobEffect]) -> list[JobState]:
    changes = [effect.change for effect in effects if isinstance(effect, Announce)]
    return [change.state for change in changes if isinstance(change, StateChanged)]


def final_job(outcome: JobState) -> Job:
    by: dict[JobState, tuple[JobInput, ...]] = {
        JobState.COMPLETED: (report(0.95), delivered(1), delivered(2), CLEAN_EXIT),
        JobState.MISSED: (report(0.5), CLEAN_EXIT),
        JobState.FAILED: (RunExited("j1-1", 1),),
        JobState.CANCELLED: (CancelRequested(), CLEAN_EXIT),
    }
    job = after(running_job(), *by[outcome])
    assert job.state is outcome
    return job
