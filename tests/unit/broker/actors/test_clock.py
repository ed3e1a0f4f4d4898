"""The clock of life: what somebody does to the machine's clock, or to the broker, counts against nobody."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from testing.actors import make_node
from testing.jobs import new_job, report, run_of
from tiercel.broker.actors.clock import MAX_STEP_SECONDS, SystemClock, moment_of
from tiercel.broker.actors.life import TICK_SECONDS
from tiercel.broker.lifecycle import machine
from tiercel.broker.lifecycle import node as node_machine
from tiercel.broker.lifecycle.job_events import Assigned, JobInput, RunIsAlive, Ticked
from tiercel.broker.lifecycle.node import LeaseSettings, NodeLife, NodeNews
from tiercel.core.jobs import Job, JobState
from tiercel.core.shares import Share


@dataclass
class Machine:
    """A machine whose clocks are in a test's hands, and a broker on it that ticks."""

    wall: float = 1_000_000.0
    up: float = 50.0

    def __post_init__(self) -> None:
        self.clock = SystemClock(lambda: self.wall, lambda: self.up)

    def pass_time(self, seconds: float) -> None:
        self.wall += seconds
        self.up += seconds

    def tick(self) -> None:
        self.pass_time(TICK_SECONDS)
        self.clock.tick()

    def told(self, job: Job, *messages: JobInput) -> Job:
        for message in messages:
            job, _ = machine.handle(job, message, moment_of(self.clock))
        return job


@pytest.fixture
def here() -> Machine:
    return Machine()


def running(here: Machine) -> Job:
    return here.told(
        new_job(report_timeout_seconds=10.0), Assigned("n1", Share(0.5, reason="half"), 1), RunIsAlive("j1-1")
    )


@pytest.mark.parametrize("seconds", [400.0, -400.0])
def test_a_clock_that_is_set_makes_no_run_hang_and_no_lease_run_out(here: Machine, seconds: float) -> None:
    job, life = running(here), NodeLife(make_node(), here.clock.alive())
    here.tick()
    here.wall += seconds
    assert here.told(job, Ticked()) is job
    assert node_machine.ticked(life, LeaseSettings(), here.clock.alive()) == (life, None)
    assert run_of(here.told(job, report(0.5))).silence is not None


@pytest.mark.parametrize("seconds", [20.0, 86_400.0])
def test_a_pause_of_the_broker_makes_no_run_hang_and_no_lease_run_out(here: Machine, seconds: float) -> None:
    job, life = running(here), NodeLife(make_node(), here.clock.alive())
    here.tick()
    before = here.clock.alive()
    here.pass_time(seconds)
    # What is in the mailboxes may be read before the broker's own tick or after it.
    for _ in range(2):
        assert here.told(job, Ticked()) is job
        assert node_machine.ticked(life, LeaseSettings(), here.clock.alive()) == (life, None)
        here.tick()
    assert before < here.clock.alive() <= before + MAX_STEP_SECONDS + TICK_SECONDS


def test_after_a_pause_a_run_that_really_hangs_is_found_out_in_its_time(here: Machine) -> None:
    job, life = running(here), NodeLife(make_node(), here.clock.alive())
    here.pass_time(20.0)
    began = here.up
    while here.told(job, Ticked()) is job:
        here.tick()
        assert here.up <= began + 10 + TICK_SECONDS
    hung = here.told(job, Ticked())
    assert (hung.state, hung.stop_outcome) == (JobState.STOPPING, JobState.FAILED)
    here.tick()
    assert node_machine.ticked(life, LeaseSettings(), here.clock.alive())[1] is NodeNews.OFFLINE


def test_the_clock_of_life_keeps_pace_while_the_broker_is_at_work(here: Machine) -> None:
    began = here.clock.alive()
    for _ in range(200):
        here.tick()
    assert here.clock.alive() - began == pytest.approx(200 * TICK_SECONDS)
