"""The scheduler's actor: what it decided stands until the job has confirmed it."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from testing.clock import ManualClock
from testing.jobs import make_spec
from tiercel.broker.actors.journal import Journal
from tiercel.broker.actors.scheduler import SchedulerActor
from tiercel.broker.actors.scheduler_messages import (
    JobObserved,
    MoveRefused,
    NodeObserved,
    SchedulerTicked,
    SomethingHappened,
)
from tiercel.broker.lifecycle.job_events import (
    Assigned,
    Deferred,
    JobInput,
    Preempted,
    ShareUpdated,
    TierFeasibilityChanged,
)
from tiercel.broker.scheduling.fair import FairPolicy, FairState
from tiercel.broker.scheduling.interface import Assignment, JobView, NodeView, Plan, Snapshot, Trigger
from tiercel.broker.scheduling.loop import LoopSettings
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.core.jobs import Resources, TierState, TierStatus
from tiercel.core.shares import Share
from tiercel.core.tenants import PriorityClass

GIB = 1024**3
NODE = NodeView("n1", 4.0, 3 * GIB)
SPEC = make_spec()


def view(job_id: str, *, node_id: str = "", share: Share | None = None) -> JobView:
    tiers = tuple(TierStatus(number, tier) for number, tier in enumerate(SPEC.tiers, start=1))
    resources = Resources(1.0, 2 * GIB)
    return JobView(
        job_id, "alice", 0.0, SPEC.direction, tiers, resources, node_id=node_id, movable=not node_id, share=share
    )


@dataclass
class Scheduler:
    """A scheduler's actor, and what it told whom."""

    actor: SchedulerActor
    clock: ManualClock
    store: Store
    told: list[tuple[str, JobInput]] = field(default_factory=list)

    async def on_news(
        self, *messages: JobObserved | MoveRefused | NodeObserved | SomethingHappened | SchedulerTicked
    ) -> None:
        for message in messages:
            self.actor.send_nowait(message)
        await self.actor.wait_idle()

    async def happened(self, trigger: Trigger = Trigger.ARRIVAL) -> list[tuple[str, JobInput]]:
        """What a look at things leads to."""
        self.told.clear()
        await self.on_news(SomethingHappened(trigger))
        return list(self.told)

    async def interval(self) -> list[tuple[str, JobInput]]:
        self.told.clear()
        self.clock.advance(1000)
        await self.on_news(SchedulerTicked())
        return list(self.told)


@contextlib.asynccontextmanager
async def running(policy: FairPolicy) -> AsyncIterator[Scheduler]:
    clock, told = ManualClock(), list[tuple[str, JobInput]]()
    with tempfile.TemporaryDirectory() as folder:
        async with Store(sqlite_url(Path(folder, "broker.sqlite"))) as store, asyncio.TaskGroup() as group:
            journal = Journal(store, clock, 0)
            actor = SchedulerActor(
                policy, LoopSettings(), journal, clock, lambda job_id, message: told.append((job_id, message))
            )
            tasks = [group.create_task(journal.run()), group.create_task(actor.run())]
            yield Scheduler(actor, clock, store, told)
            for task in tasks:
                task.cancel()


@pytest.fixture
async def scheduler() -> AsyncIterator[Scheduler]:
    async with running(FairPolicy()) as one:
        await one.on_news(NodeObserved("n1", NODE))
        yield one


async def test_a_placement_is_reserved_until_it_is_confirmed(scheduler: Scheduler) -> None:
    await scheduler.on_news(JobObserved("j1", view("j1"), 0))
    (first, _) = await scheduler.happened()
    assert first[0] == "j1"
    assert isinstance(first[1], Assigned)
    assert first[1].attempt == 1
    # Late news of the time before, and another job that wants the same memory.
    await scheduler.on_news(JobObserved("j1", view("j1"), 0), JobObserved("j2", view("j2"), 0))
    told = await scheduler.happened()
    assert [job_id for job_id, message in told if isinstance(message, Assigned)] == []
    assert isinstance(dict(told)["j2"], Deferred)


async def test_a_confirmed_placement_is_not_told_again(scheduler: Scheduler) -> None:
    await scheduler.on_news(JobObserved("j1", view("j1"), 0))
    ((_, message), *_) = await scheduler.happened()
    assert isinstance(message, Assigned)
    await scheduler.on_news(JobObserved("j1", view("j1", node_id="n1", share=message.share), 1))
    assert scheduler.actor._reserved == {}
    assert await scheduler.happened() == []
    assert len(await scheduler.store.decisions_of("j1", limit=10)) == 1


async def test_what_was_not_confirmed_is_told_again_and_decided_once(scheduler: Scheduler) -> None:
    await scheduler.on_news(JobObserved("j1", view("j1"), 0))
    first = await scheduler.happened()
    assert await scheduler.interval() == first
    assert len(await scheduler.store.decisions_of("j1", limit=10)) == 1


async def test_a_lost_run_is_placed_as_the_next_attempt(scheduler: Scheduler) -> None:
    await scheduler.on_news(JobObserved("j1", view("j1"), 1))
    ((_, message), *_) = await scheduler.happened()
    assert isinstance(message, Assigned)
    assert message.attempt == 2


async def test_a_job_that_needs_nothing_any_more_frees_what_was_reserved(scheduler: Scheduler) -> None:
    await scheduler.on_news(JobObserved("j1", view("j1"), 0))
    await scheduler.happened()
    await scheduler.on_news(JobObserved("j1", None, 0), JobObserved("j2", view("j2"), 0))
    assert [job_id for job_id, message in await scheduler.happened() if isinstance(message, Assigned)] == ["j2"]


async def test_a_share_is_reserved_until_it_is_confirmed() -> None:
    async with running(FairPolicy()) as scheduler:
        await scheduler.on_news(NodeObserved("n1", replace(NODE, memory_bytes=8 * GIB)))
        whole = Share(1.0, None, "all of it")
        placed = view("j1", node_id="n1", share=whole)
        await scheduler.on_news(JobObserved("j1", placed, 1), JobObserved("j2", view("j2"), 0))
        told = await scheduler.happened()
        (reshared,) = [message for job_id, message in told if job_id == "j1"]
        assert isinstance(reshared, ShareUpdated)
        assert (reshared.run_id, reshared.share.cpu_weight) == ("j1-1", 0.5)
        # News of the time before does not make it decide again.
        await scheduler.on_news(JobObserved("j1", placed, 1))
        assert await scheduler.happened() == []
        assert len(await scheduler.store.decisions_of("j1", limit=10)) == 1
        await scheduler.on_news(JobObserved("j1", replace(placed, share=reshared.share), 1))
        assert "j1" not in scheduler.actor._reserved


async def test_a_new_share_before_the_placement_is_confirmed_does_not_place_twice() -> None:
    async with running(FairPolicy()) as scheduler:
        await scheduler.on_news(NodeObserved("n1", replace(NODE, memory_bytes=8 * GIB)))
        await scheduler.on_news(JobObserved("j1", view("j1"), 0))
        await scheduler.happened()
        await scheduler.on_news(JobObserved("j2", view("j2"), 0))
        messages = [message for job_id, message in await scheduler.happened() if job_id == "j1"]
        half = Share(0.5, None, "equal share with 1 other job on this node")
        assert messages == [Assigned("n1", half, 1), ShareUpdated("j1-1", half)], "both are for the first run"
        await scheduler.on_news(JobObserved("j1", view("j1"), 0))
        assert "j1" in scheduler.actor._reserved


class Stubborn(FairPolicy):
    """Plans what must not be carried out, or fails."""

    def __init__(self, plan: Plan | None) -> None:
        super().__init__()
        self._plan = plan
        self.asked = 0

    def plan(self, snapshot: Snapshot, state: FairState) -> tuple[Plan, FairState]:
        self.asked += 1
        if self._plan is None:
            raise ZeroDivisionError
        return self._plan, state


@pytest.mark.parametrize("plan", [None, Plan(assignments=(Assignment("j1", "nowhere", Share(5.0)),))])
async def test_a_policy_that_fails_changes_nothing_and_is_asked_again_later(plan: Plan | None) -> None:
    policy = Stubborn(plan)
    async with running(policy) as scheduler:
        await scheduler.on_news(NodeObserved("n1", NODE), JobObserved("j1", view("j1"), 0))
        assert await scheduler.happened() == []
        asked = policy.asked
        await scheduler.on_news(*[JobObserved("j1", view("j1"), 0)] * 50)
        assert policy.asked == asked, "not at every message"
        assert await scheduler.interval() == []
        assert policy.asked == asked + 1


async def test_several_events_are_answered_by_one_plan() -> None:
    policy = Stubborn(Plan(waiting={"j1": "later"}))
    async with running(policy) as scheduler:
        await scheduler.on_news(
            JobObserved("j1", view("j1"), 0), *[SomethingHappened(trigger) for trigger in Trigger for _ in range(5)]
        )
        assert policy.asked == 1
        assert scheduler.told == [("j1", Deferred("later"))]


async def test_verdicts_are_told_when_they_change() -> None:
    policy = Stubborn(Plan(waiting={"j1": "later"}, unreachable={"j1": "too far"}))
    async with running(policy) as scheduler:
        await scheduler.on_news(JobObserved("j1", view("j1"), 0))
        assert ("j1", TierFeasibilityChanged("too far")) in await scheduler.happened()
        held = view("j1")
        held = replace(held, tiers=(replace(held.tiers[0], state=TierState.UNREACHABLE), held.tiers[1]))
        await scheduler.on_news(JobObserved("j1", held, 0))
        assert await scheduler.happened() == [("j1", Deferred("later"))]


async def test_whoever_was_told_to_stop_for_another_is_seen_stopping_and_nobody_else_is_told(
    scheduler: Scheduler,
) -> None:
    running = replace(view("j1", node_id="n1", share=Share(1.0)), migratable=True)
    urgent = replace(view("j2"), priority_class=PriorityClass("urgent", 1))
    await scheduler.on_news(JobObserved("j1", running, 1), JobObserved("j2", urgent, 0))
    stops = [each for each in await scheduler.happened() if isinstance(each[1], Preempted)]
    assert stops == [("j1", Preempted("j1-1", "suspended for job j2 of class urgent"))]
    await scheduler.on_news(JobObserved("j1", running, 1))  # late news of the time before
    assert not any(isinstance(message, Preempted) for _, message in await scheduler.happened())
    await scheduler.on_news(MoveRefused("j1"))  # not now: it hands a model over
    assert any(isinstance(message, Preempted) for _, message in await scheduler.happened())
    await scheduler.on_news(JobObserved("j1", replace(running, stopping=True, migratable=False), 1))
    assert not any(isinstance(message, Preempted | Assigned) for _, message in await scheduler.happened())
    await scheduler.on_news(JobObserved("j1", view("j1"), 1))
    told = [name for name, message in await scheduler.happened() if isinstance(message, Assigned)]
    assert told == ["j2"]


async def test_policies_are_shown_what_a_node_was_measured_to_give_its_runs(scheduler: Scheduler) -> None:
    placed = view("j1", node_id="n1", share=Share(1.0, None, "all of it"))
    for look in range(60):  # it could use a core, and gets half of one
        await scheduler.on_news(JobObserved("j1", replace(placed, cpu_seconds=float(look)), 1))
        await scheduler.happened()
        scheduler.clock.advance(2.0)
    assert scheduler.actor.present().given == {"n1": pytest.approx(0.5, abs=0.05)}
