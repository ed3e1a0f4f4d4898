"""What the scheduler's actor holds on both nodes while a job is moved."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from testing.clock import ManualClock
from testing.jobs import make_spec
from tiercel.broker.actors.journal import Journal
from tiercel.broker.actors.scheduler import SchedulerActor
from tiercel.broker.actors.scheduler_messages import (
    JobObserved,
    MoveRefused,
    NodeObserved,
    SchedulerMessage,
    SchedulerTicked,
    SomethingHappened,
)
from tiercel.broker.lifecycle.job_events import Assigned, Deferred, JobInput, MoveOrdered, ShareUpdated
from tiercel.broker.scheduling.fair import FairPolicy, FairState
from tiercel.broker.scheduling.interface import Assignment, JobView, NodeView, Plan, Snapshot, Trigger
from tiercel.broker.scheduling.loop import LoopSettings
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.core.jobs import Resources, TierStatus
from tiercel.core.nodes import Accelerator
from tiercel.core.shares import AcceleratorShare, Share

GIB = 1024**3
SPEC = make_spec()
MOVED = Share(1.0, None, "moved")


def view(job_id: str, node_id: str = "", share: Share | None = None) -> JobView:
    tiers = tuple(TierStatus(number, tier) for number, tier in enumerate(SPEC.tiers, start=1))
    return JobView(
        job_id,
        "alice",
        0.0,
        SPEC.direction,
        tiers,
        Resources(1.0, 2 * GIB),
        node_id=node_id,
        movable=not node_id,
        share=share,
        migratable=bool(node_id),
    )


RUNS_ON_N1 = JobObserved("j1", view("j1", "n1", Share(1.0, None, "all")), 1)
MOVES_TO_N2 = JobObserved("j1", replace(view("j1", "n2", MOVED), migratable=False), 1, leaving="n1")
STARTS_ON_N2 = JobObserved("j1", replace(view("j1", "n2", MOVED), migratable=False), 2)


class Mover(FairPolicy):
    """Equal shares, but what may be moved goes to n2."""

    def plan(self, snapshot: Snapshot, state: FairState) -> tuple[Plan, FairState]:
        plan, state = super().plan(snapshot, state)
        movers = {job.id for job in snapshot.jobs if job.migratable and job.node_id != "n2"}
        entries = [Assignment(e.job_id, "n2", MOVED) if e.job_id in movers else e for e in plan.assignments]
        return replace(plan, assignments=tuple(entries)), state


@dataclass
class Scheduler:
    """A scheduler's actor with two nodes that have room for one job each, and what it told whom."""

    actor: SchedulerActor
    clock: ManualClock
    told: list[tuple[str, JobInput]] = field(default_factory=list)

    async def on_news(self, *messages: SchedulerMessage) -> list[tuple[str, JobInput]]:
        """What news leads to."""
        self.told.clear()
        for message in messages:
            self.actor.send_nowait(message)
        await self.actor.wait_idle()
        return list(self.told)

    async def look(self, *messages: SchedulerMessage) -> list[tuple[str, JobInput]]:
        """What news and a look at things lead to."""
        return await self.on_news(*messages, SomethingHappened(Trigger.EXIT))


@contextlib.asynccontextmanager
async def scheduler() -> AsyncIterator[Scheduler]:
    clock, told = ManualClock(), list[tuple[str, JobInput]]()
    with tempfile.TemporaryDirectory() as folder:
        async with Store(sqlite_url(Path(folder, "broker.sqlite"))) as store, asyncio.TaskGroup() as group:
            journal = Journal(store, clock, 0)
            actor = SchedulerActor(
                Mover(), LoopSettings(), journal, clock, lambda job, message: told.append((job, message))
            )
            tasks = [group.create_task(journal.run()), group.create_task(actor.run())]
            running = Scheduler(actor, clock, told)
            await running.on_news(*(NodeObserved(name, NodeView(name, 4.0, 3 * GIB)) for name in ("n1", "n2")))
            yield running
            for task in tasks:
                task.cancel()


def placements(told: list[tuple[str, JobInput]]) -> dict[str, JobInput]:
    return {job: message for job, message in told if isinstance(message, Assigned | MoveOrdered | Deferred)}


async def test_a_move_is_ordered_once_and_again_only_until_it_is_confirmed() -> None:
    async with scheduler() as running:
        told = await running.look(RUNS_ON_N1)
        assert told == [("j1", MoveOrdered("n2", MOVED, 2)), ("j1", ShareUpdated("j1-2", MOVED))]
        assert placements(await running.look(RUNS_ON_N1)) == {}
        running.clock.advance(1000)
        assert placements(await running.on_news(SchedulerTicked())) == {"j1": MoveOrdered("n2", MOVED, 2)}
        assert await running.look(MOVES_TO_N2) == []
        assert running.actor._reserved == {}
        assert await running.look(STARTS_ON_N2) == []


async def test_both_nodes_are_held_until_the_exit_is_confirmed() -> None:
    waiting = JobObserved("j2", view("j2"), 0)
    async with scheduler() as running:
        await running.look(RUNS_ON_N1)
        # Decided and not confirmed; confirmed and not gone; gone.
        assert isinstance(placements(await running.look(waiting))["j2"], Deferred)
        assert isinstance(placements(await running.look(MOVES_TO_N2))["j2"], Deferred)
        placed = placements(await running.look(STARTS_ON_N2))["j2"]
        assert isinstance(placed, Assigned)
        assert placed.node_id == "n1"


async def test_accelerators_are_held_on_both_nodes_until_the_exit_is_confirmed() -> None:
    """Memory is not what is short here: each node has one accelerator, which a job wants to itself."""
    wanted = Resources(1.0, 1, accelerators=1)
    held = Share(1.0, None, "all", (AcceleratorShare("n1-0", 1.0, 8 * GIB),))
    there = Share(1.0, None, "moved; accelerator 0 to itself", (AcceleratorShare("n2-0", 1.0, 8 * GIB),))
    runs = JobObserved("j1", replace(view("j1", "n1", held), resources=wanted), 1)
    leaves = JobObserved(
        "j1",
        replace(view("j1", "n2", there), resources=wanted, migratable=False),
        1,
        leaving="n1",
        leaving_accelerators=("n1-0",),
    )
    waiting = JobObserved("j2", replace(view("j2"), resources=wanted), 0)
    async with scheduler() as running:
        await running.on_news(
            *(
                NodeObserved(
                    name, NodeView(name, 4.0, 3 * GIB, accelerators=(Accelerator(f"{name}-0", "GPU", 8 * GIB),))
                )
                for name in ("n1", "n2")
            )
        )
        assert placements(await running.look(runs)) == {"j1": MoveOrdered("n2", there, 2)}
        # Decided and not confirmed; confirmed and not gone; gone.
        assert isinstance(placements(await running.look(waiting))["j2"], Deferred)
        kept = placements(await running.look(leaves))["j2"]
        assert isinstance(kept, Deferred)
        assert "accelerator" in kept.reason
        gone = JobObserved("j1", leaves.view, 2)
        placed = placements(await running.look(gone))["j2"]
        assert isinstance(placed, Assigned)
        assert [each.id for each in placed.share.accelerators] == ["n1-0"]


async def test_a_move_that_is_refused_frees_what_was_reserved() -> None:
    async with scheduler() as running:
        await running.look(RUNS_ON_N1)
        await running.on_news(MoveRefused("j1"))
        stays = replace(RUNS_ON_N1, view=replace(view("j1", "n1", Share(1.0, None, "all")), migratable=False))
        placed = placements(await running.look(stays, JobObserved("j2", view("j2"), 0)))["j2"]
        assert isinstance(placed, Assigned)
        assert placed.node_id == "n2"


async def test_a_refusal_does_not_touch_a_placement() -> None:
    async with scheduler() as running:
        await running.look(JobObserved("j2", view("j2"), 0))
        await running.on_news(MoveRefused("j2"), MoveRefused("unknown"))
        assert "j2" in running.actor._reserved
