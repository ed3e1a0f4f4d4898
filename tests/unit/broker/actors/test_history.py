"""What is remembered of runs, while they run and afterwards."""

from __future__ import annotations

import math

from testing.actors import Actors, make_node, running_actors
from testing.jobs import make_spec
from tiercel.broker.actors.history import History
from tiercel.broker.actors.run_curve import MAX_POINTS, RunCurve
from tiercel.broker.scheduling.fair import FairPolicy, FairState
from tiercel.broker.scheduling.interface import CurvePoint, PastRun, Plan, Snapshot
from tiercel.broker.store.contract import Store
from tiercel.core.jobs import Direction, Observation
from tiercel.core.run_records import RunRecord
from tiercel.core.tenants import Tenant


def seen(spent: float, value: float) -> Observation:
    return Observation(at=0.0, epoch=0, value=value, cpu_seconds=spent)


# --- The curve of one run ---------------------------------------------------------------------------------------------


def test_a_curve_keeps_the_best_so_far_and_the_last_report() -> None:
    reports = [seen(1, 0.3), seen(2, 0.5), seen(3, math.nan), seen(4, 0.4), seen(5, 0.6), seen(6, 0.6)]
    assert RunCurve(Direction.MAX, reports).points() == ((1, 0.3), (2, 0.5), (5, 0.6), (6, 0.6))
    assert RunCurve(Direction.MIN, reports).points() == ((1, 0.3), (6, 0.3))
    assert RunCurve(Direction.MIN).points() == ()


def test_work_never_runs_backwards() -> None:
    assert RunCurve(Direction.MAX, [seen(5, 0.1), seen(2, 0.2)]).points() == ((5, 0.1), (5, 0.2))


def test_a_long_curve_is_thinned_but_keeps_its_ends() -> None:
    curve = RunCurve(Direction.MAX, [seen(index, 1 - 1 / (1 + index)) for index in range(5_000)])
    points = curve.points()
    assert len(points) == MAX_POINTS
    assert (points[0], points[-1]) == ((0, 0.0), (4999, 1 - 1 / 5000))
    assert list(points) == sorted(points)
    flat = curve.after(seen(6_000, 0.5)).points()
    assert (len(flat), flat[-1]) == (MAX_POINTS, (6_000, 1 - 1 / 5000))
    assert curve.points() == points, "a copy leaves the original alone"


# --- Runs by workload -------------------------------------------------------------------------------------------------


def record(job_id: str, workload: str, value: float = 0.5) -> RunRecord:
    return RunRecord(job_id, workload, 0.0, ((1.0, value),))


def past(value: float) -> PastRun:
    return PastRun((CurvePoint(1.0, value),))


def test_the_latest_runs_of_the_latest_workloads_are_shown() -> None:
    history = History(runs=2, workloads=2)
    history.add(record("1", "a", 0.1), record("2", "b", 0.2), record("3", "a", 0.3), record("4", "a", 0.4))
    assert history.by_workload() == {"a": (past(0.3), past(0.4)), "b": (past(0.2),)}
    history.add(record("3", "a", 0.5))
    assert history.by_workload()["a"] == (past(0.4), past(0.5)), "one run a job, the last record of it"
    history.add(record("5", "c"))
    assert set(history.by_workload()) == {"a", "c"}
    assert history.by_workload() is history.by_workload()


# --- In the broker ----------------------------------------------------------------------------------------------------


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
