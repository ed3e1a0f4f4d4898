"""What a job delivers beyond its tiers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.jobs import AT, SHARE, after, delivered, make_spec, report, run_of, running_job
from tiercel.broker.lifecycle import machine
from tiercel.broker.lifecycle.job_events import (
    Assigned,
    DeliveryEnded,
    JobInput,
    MoveOrdered,
    Reported,
    RequestDelivery,
    RunExited,
)
from tiercel.core.endpoints import delivery_id, job_of_delivery
from tiercel.core.jobs import Job, JobState, Tier, TierState
from tiercel.core.moments import Moment
from tiercel.core.shares import Share
from tiercel.core.shipping import Shipping


class Life:
    """A job and the numbers of the tiers whose models were asked for."""

    def __init__(self, ship: Shipping | None = None, **spec: object) -> None:
        spec = {"tiers": (Tier(0.2),), "continue_after_last_tier": True, **spec}
        self.job: Job = machine.create("j1", "alice", make_spec(ship=ship or Shipping(), **spec), AT)[0]
        self.asked: list[tuple[int, float]] = []
        self.now = AT
        self.sequence = 0
        self.tell(Assigned("n1", Share(1.0, None, ""), 1))

    def tell(self, event: JobInput) -> None:
        self.job, effects = machine.handle(self.job, event, Moment.of_one_clock(self.now))
        self.asked += [
            (each.tier.number, each.tier.tier.target) for each in effects if isinstance(each, RequestDelivery)
        ]

    def report(self, value: float, *, ended: bool = False) -> None:
        self.sequence += 1
        self.tell(Reported("j1-1", self.sequence, self.sequence, {"accuracy": value}, self.now, 0.0, ended=ended))

    def delivered(self, tier: int, version: int | None, value: float | None) -> None:
        self.tell(DeliveryEnded(tier, version, value, self.now))


def test_at_the_end_of_the_training_the_best_is_asked_for_and_waited_for() -> None:
    life = Life()
    life.report(0.25)
    life.delivered(1, 1, 0.24)
    life.report(0.5)
    assert life.asked == [(1, 0.2)], "while it trains only tiers are delivered"
    life.report(0.5, ended=True)
    assert life.asked == [(1, 0.2), (0, 0.24)]
    assert life.job.epoch == 2, "what it says at its end is of an earlier epoch"
    life.tell(RunExited("j1-1", 0))
    assert life.job.state is JobState.STOPPING
    life.delivered(0, 2, 0.49)
    assert (life.job.state, life.job.reason) == (JobState.COMPLETED, "its tier is delivered")
    assert [tier.version for tier in life.job.tiers] == [1]


def test_a_best_that_could_not_be_delivered_is_no_fault_of_the_job() -> None:
    life = Life()
    life.report(0.25)
    life.delivered(1, 1, 0.24)
    life.report(0.5, ended=True)
    life.tell(RunExited("j1-1", 0))
    life.delivered(0, None, None)
    assert life.job.state is JobState.COMPLETED


def test_what_ends_while_its_tier_is_delivered_is_asked_for_after_it() -> None:
    life = Life(tiers=(Tier(0.2), Tier(0.9)), continue_after_last_tier=False)
    life.report(0.25)
    life.report(0.5, ended=True)
    assert life.asked == [(1, 0.2)]
    life.delivered(1, 1, 0.24)
    assert life.asked == [(1, 0.2), (0, 0.24)]


def test_nothing_is_asked_for_that_is_not_better_or_not_wanted() -> None:
    for ship, values in ((Shipping(), (0.24,)), (Shipping(), (0.2,)), (Shipping(only_tiers=True), (0.5,))):
        life = Life(ship)
        life.report(0.25)
        life.delivered(1, 1, 0.24)
        for value in values:
            life.report(value, ended=True)
        assert life.asked == [(1, 0.2)]


def test_a_job_that_reached_no_tier_delivers_nothing() -> None:
    life = Life()
    life.report(0.1)
    life.report(0.1, ended=True)
    assert life.asked == []


def test_better_models_are_delivered_step_by_step_while_it_trains() -> None:
    life = Life(Shipping(every=0.1))
    life.report(0.25)
    life.delivered(1, 1, 0.25)
    for value in (0.3, 0.349, 0.36, 0.5):
        life.report(value)
    assert life.asked == [(1, 0.2), (0, 0.25)], "one at a time"
    assert delivery_id("j1", 0, life.job.best_deliveries) == "j1-best-1"
    life.delivered(0, 2, 0.36)
    life.report(0.45)
    life.report(0.5)
    assert life.asked[2:] == [(0, 0.36)]
    assert delivery_id("j1", 0, life.job.best_deliveries) == "j1-best-2"


def test_better_models_are_delivered_at_most_so_often() -> None:
    life = Life(Shipping(best_every_seconds=60.0))
    life.report(0.25)
    life.delivered(1, 1, 0.25)
    life.now += 59
    life.report(0.3)
    life.now += 2
    life.report(0.25)
    assert life.asked == [(1, 0.2)]
    life.report(0.26)
    assert life.asked == [(1, 0.2), (0, 0.25)]


def test_a_run_that_is_lost_takes_its_best_with_it_and_the_next_one_is_asked() -> None:
    life = Life()
    life.report(0.25)
    life.delivered(1, 1, 0.24)
    life.report(0.5, ended=True)
    life.tell(RunExited("j1-1", None, lost=True))
    assert life.job.state is JobState.PENDING
    life.tell(Assigned("n1", Share(1.0, None, ""), 2))
    assert run_of(life.job).offered_value is None
    assert life.asked[-1] == (0, 0.24)
    best = life.job.best
    assert best is not None
    assert best.state is TierState.REACHED
    assert replace(life.job, best=None).tiers == life.job.tiers


@pytest.mark.parametrize(
    ("known", "job"), [("a-b-tier-1", "a-b"), ("a-best-12", "a"), ("a-other-1", ""), ("tier-1", ""), ("", "")]
)
def test_the_job_of_a_delivery(known: str, job: str) -> None:
    assert job_of_delivery(known) == job


def test_a_training_that_ended_before_it_was_moved_has_not_ended_where_it_goes_on() -> None:
    ended = Reported("j1-1", 2, 2, {"accuracy": 0.5}, AT + 9, 0.0, ended=True)
    moved = after(running_job(), report(0.5), ended, MoveOrdered("n2", SHARE, 2), RunExited("j1-1", 0, carried=True))
    job = after(moved, report(0.85, run_id="j1-2"), delivered(1))
    assert after(job, report(0.86, sequence=2, run_id="j1-2")).best is None, "the best one follows at its end"
