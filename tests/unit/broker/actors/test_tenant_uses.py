"""What tenants have used, counted once, and what follows of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.actors import ALICE, BOB, make_node, running, running_actors, submit
from testing.clock import ManualClock
from testing.jobs import make_spec
from tiercel.broker.lifecycle.job_events import UsageMeasured
from tiercel.broker.scheduling.fair import FairPolicy, FairState
from tiercel.broker.scheduling.interface import Plan, Snapshot
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.core.errors import QuotaExceededError
from tiercel.core.jobs import Resources
from tiercel.core.tenants import Tenant

WEEK = 7 * 24 * 3600.0


class Recording(FairPolicy):
    """Equal shares; keeps what it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: dict[str, float] = {}

    def plan(self, snapshot: Snapshot, state: FairState) -> tuple[Plan, FairState]:
        self.shown = {job.tenant: job.tenant_weight for job in snapshot.jobs}
        return super().plan(snapshot, state)


async def test_what_a_job_has_used_is_counted_once_also_over_a_restart(tmp_path: Path) -> None:
    store, clock = Store(sqlite_url(tmp_path / "broker.sqlite")), ManualClock()
    async with store:
        async with running_actors(store, clock) as actors:
            await actors.connect()
            job = await running(actors)
            await actors.report(job.run_id, 0.1, 7)
            assert actors.registry.uses.of("alice").core_seconds == pytest.approx(7.0)
            # Told, and not stored: it is counted with what is stored next, here after a restart.
            await actors._send_to_job(job.run_id, UsageMeasured(job.run_id, 9.0))
            await actors.settle()
        assert [(use.tenant, use.core_seconds) for use in await store.load_uses()] == [("alice", 7.0)]
        async with running_actors(store, clock) as actors:
            await actors.connect(runs=[job.run_id])
            await actors.alive(job.run_id)
            await actors.report(job.run_id, 0.2, 12)
            assert actors.registry.uses.of("alice").core_seconds == pytest.approx(12.0)
            await actors.exit(job.run_id, cpu_seconds=15.0)
            assert actors.registry.uses.of("alice").core_seconds == pytest.approx(15.0)
            assert actors.registry.uses.of("bob").core_seconds == 0.0


async def test_who_has_used_what_it_may_submits_nothing_until_it_is_less(tmp_path: Path) -> None:
    store, clock = Store(sqlite_url(tmp_path / "broker.sqlite")), ManualClock()
    async with store, running_actors(store, clock) as actors:
        small = Tenant("alice", "a" * 32, max_core_hours=10 / 3600)
        await actors.connect()
        job = await submit(actors, tenant=small)
        await actors.alive(job.run_id)
        await actors.report(job.run_id, 0.1, 20)
        with pytest.raises(
            QuotaExceededError, match=r"used 0.00556 hours of cores and may have used 0.00278"
        ) as refused:
            await actors.service.submit(small, make_spec(endpoint="b"), "")
        assert refused.value.seconds == pytest.approx(WEEK, rel=0.01)
        await submit(actors, "c", BOB)
        await actors.service.cancel("alice", job.id)
        clock.advance(WEEK * 1.01)
        await submit(actors, "b", small)
        nothing = Tenant("alice", "a" * 32, max_accelerator_hours=0.0)
        with pytest.raises(QuotaExceededError, match=r"hours of accelerators.*ask the operator"):
            await actors.service.submit(nothing, make_spec(endpoint="d", resources=Resources(accelerators=1)), "")
        await submit(actors, "d", nothing)


async def test_the_policy_sees_who_has_used_more(tmp_path: Path) -> None:
    store, clock, policy = Store(sqlite_url(tmp_path / "broker.sqlite")), ManualClock(), Recording()
    async with store, running_actors(store, clock, policy) as actors:
        await actors.connect(make_node(cpu_cores=2.0))
        actors.registry.uses.count("bob", 100 * 3600.0, 0.0)
        await submit(actors)
        assert policy.shown == {"alice": 1.0}, "with nobody beside it"
        await submit(actors, "c", BOB)
        assert policy.shown["alice"] > 1.5 > 0.7 > policy.shown["bob"]
        assert ALICE.weight == BOB.weight
