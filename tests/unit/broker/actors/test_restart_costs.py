"""What runs took to get to work reaches the policy, and outlives the broker."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from testing.actors import running_actors, submit
from testing.clock import ManualClock
from tiercel.broker.lifecycle.job_events import RunIsAlive
from tiercel.broker.scheduling.fair import FairPolicy, FairState
from tiercel.broker.scheduling.interface import Plan, RestartCost, Snapshot
from tiercel.broker.store.sql import Store
from tiercel.core.starts import Start


class Onlooker(FairPolicy):
    """Keeps what it was shown."""

    shown: Mapping[str, RestartCost]

    def plan(self, snapshot: Snapshot, state: FairState) -> tuple[Plan, FairState]:
        self.shown = snapshot.restarts
        return super().plan(snapshot, state)

    @property
    def only(self) -> RestartCost:
        (cost,) = self.shown.values()
        return cost


@pytest.mark.parametrize("over", [False, True])
async def test_a_start_is_measured_shown_and_known_after_a_restart_of_the_broker(store: Store, *, over: bool) -> None:
    clock, policy = ManualClock(), Onlooker()
    async with running_actors(store, clock, policy) as actors:
        await actors.connect()
        job = await submit(actors)
        await actors.alive(job.run_id)
        clock.advance(2.5)
        await actors.agents.deliver_to_job("n1", job.run_id, RunIsAlive(job.run_id, begun_cpu_seconds=1.5))
        job = await actors.job(job.id)
        assert job.starts == (Start("n1", 2.5, 1.5),)
        await actors.report(job.run_id, 0.5)
        if over:
            await actors.exit(job.run_id)
        await submit(actors, "other")
        expected = policy.only
        assert expected.start_seconds == {"n1": 2.5}
    again = Onlooker()
    async with running_actors(store, clock, again) as actors:
        await actors.connect()
        await submit(actors, "third")
        assert again.only == expected
        assert (await actors.job(job.id)).starts == job.starts
