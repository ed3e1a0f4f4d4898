"""What the broker remembers of runs and shows to policies."""

from __future__ import annotations

from testing.actors import Actors, make_node, running_actors
from testing.jobs import make_spec
from tiercel.broker.scheduling.fair import FairPolicy, FairState
from tiercel.broker.scheduling.interface import CurvePoint, PastRun, Plan, Snapshot
from tiercel.broker.store.sql import Store
from tiercel.core.jobs import Script
from tiercel.core.tenants import Tenant


class Watcher(FairPolicy):
    """Shares equally and keeps the last snapshot."""

    def __init__(self) -> None:
        super().__init__()
        self.snapshot: Snapshot | None = None

    def plan(self, snapshot: Snapshot, state: FairState) -> tuple[Plan, FairState]:
        self.snapshot = snapshot
        return super().plan(snapshot, state)


async def start_job(actors: Actors, seed: str, tenant: Tenant | None = None) -> str:
    spec = make_spec(endpoint=f"e{seed}", arguments=("--seed", seed), name=f"run {seed}", max_epochs=7)
    job = await actors.service.submit(tenant or Tenant("alice", "a" * 32), spec, "")
    await actors.settle()
    await actors.alive(f"{job.id}-1")
    await actors.settle()
    return f"{job.id}-1"


async def test_what_a_run_did_is_shown_to_the_policy_also_after_a_restart(store: Store) -> None:
    policy = Watcher()
    async with running_actors(store, policy=policy) as actors:
        await actors.connect()
        run = await start_job(actors, "1")
        await actors.report(run, 0.5, sequence=1)
        await actors.report(run, 0.7, sequence=2)
        await actors.exit(run, 1)
        await start_job(actors, "2")
        assert policy.snapshot is not None
        (view,) = policy.snapshot.jobs
        runs = policy.snapshot.history[view.workload]
        assert runs == (PastRun((CurvePoint(1.0, 0.5), CurvePoint(2.0, 0.7))),)
        assert (view.name, view.max_epochs, view.continues, view.tenant_weight) == ("run 2", 7, False, 1.0)
    again = Watcher()
    async with running_actors(store, policy=again) as actors:
        await actors.connect(make_node("other"))
        await start_job(actors, "3")
        assert again.snapshot is not None
        assert again.snapshot.history[view.workload] == runs


async def test_a_run_is_remembered_from_its_last_tier_on_with_the_report_that_reached_it(actors: Actors) -> None:
    await actors.connect()
    run = await start_job(actors, "1")
    await actors.report(run, 0.85, sequence=1)
    assert await actors.store.load_run_records() == []
    await actors.report(run, 0.95, sequence=2)
    (kept,) = await actors.store.load_run_records()
    assert kept.curve == ((1.0, 0.85), (2.0, 0.95))
    await actors.report(run, 0.97, sequence=3)
    await actors.exit(run, 1)
    (kept,) = await actors.store.load_run_records()
    assert kept.curve == ((1.0, 0.85), (2.0, 0.95), (3.0, 0.97))


async def test_a_run_that_reported_nothing_is_not_remembered(actors: Actors) -> None:
    await actors.connect()
    await actors.exit(await start_job(actors, "1"), 1)
    assert await actors.store.load_run_records() == []


async def test_an_edited_script_is_foretold_by_its_runs_before_the_edit_also_after_a_restart(store: Store) -> None:
    async def start_edit(actors: Actors, text: bytes) -> str:
        spec = make_spec(module="", script=Script("train.py", text), endpoint=f"e-{len(text)}")
        job = await actors.service.submit(Tenant("alice", "a" * 32), spec, "")
        await actors.settle()
        await actors.alive(f"{job.id}-1")
        await actors.settle()
        return f"{job.id}-1"

    async with running_actors(store, policy=Watcher()) as actors:
        await actors.connect()
        run = await start_edit(actors, b"before")
        await actors.report(run, 0.5, sequence=1)
        await actors.exit(run, 1)
    policy = Watcher()
    async with running_actors(store, policy=policy) as actors:
        await actors.connect(make_node("other"))
        await start_edit(actors, b"after it")
        assert policy.snapshot is not None
        (view,) = policy.snapshot.jobs
        assert view.workload not in policy.snapshot.history
        (known,) = policy.snapshot.earlier_runs(view)
        assert known.curve == (CurvePoint(1.0, 0.5),)
        assert known.differs > 0
