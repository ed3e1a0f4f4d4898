"""State that an earlier version left opens in this one, says the same, and what was under way goes on."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from testing.actors import Actors, make_node, running_actors, wanted_of
from testing.clock import ManualClock
from testing.jobs import run_of
from tiercel.broker.lifecycle.job_events import RunExited
from tiercel.broker.store.backups import backups_of
from tiercel.broker.store.carried import CheckpointFile
from tiercel.broker.store.checkpoints import CheckpointStore
from tiercel.broker.store.rows import without_script
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.core.cheap_variants import CheapVariant, VariantKind
from tiercel.core.endpoints import DeliveryState
from tiercel.core.errors import StoreDamagedError
from tiercel.core.jobs import Job, JobState, TierState
from tiercel.core.storage import to_json

STATES = sorted((Path(__file__).parents[2] / "data" / "states").glob("*.sql"))
# Later than anything that was recorded.
NOW = 1_000_100.0
Json = dict[str, Any]


@pytest.fixture(params=STATES, ids=[path.stem for path in STATES])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "broker.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(request.param.read_text())
    return path


def recorded(database: Path, table: str) -> list[Json]:
    """The entries of a table as they are stored."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return [json.loads(content) for (content,) in connection.execute(f"SELECT content FROM {table}")]


def of_the_job(job: Job) -> Json:
    """What was stored of a job's runs when that was a part of the job."""
    run, earlier = job.run, job.earlier
    plain: Json = json.loads(to_json(without_script(job)))
    placed: Json = plain["run"] or {}
    return {
        "attempts": job.attempts,
        "node_id": job.node_id,
        "share": placed.get("share"),
        "run_active": job.run_active,
        "run_heard": run is not None and run.heard,
        "last_sequence": job.last_sequence,
        "cpu_seconds": job.cpu_seconds,
        "finished_runs_cpu_seconds": earlier.cpu_seconds,
        "accelerator_seconds": job.accelerator_seconds,
        "finished_runs_accelerator_seconds": earlier.accelerator_seconds,
        "offered_value": run.offered_value if run is not None else None,
        "move": placed.get("move"),
        "fenced": run is not None and run.fenced,
        "lost_runs": earlier.lost,
        "lost_at": list(earlier.lost_at),
        "migrations": earlier.migrations,
        "migrated_at": earlier.migrated_at,
        **{name: value for name, value in plain.items() if name not in {"run", "earlier"}},
    }


# What ended with the life of the broker that wrote it, and what nobody asks of a run that is over.
ENDED = {"last_heard_at", "share_since", "uncounted_seconds"}
OF_THE_RUN_BEFORE = {"run_heard", "fenced", "last_sequence", "finished_runs_cpu_seconds"}


def includes(before: Any, now: Any) -> Any:
    """What was recorded, and where fields came later, these as they are now."""
    if isinstance(before, dict) and isinstance(now, dict):
        return {name: includes(before[name], value) if name in before else value for name, value in now.items()}
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        return [includes(*pair) for pair in zip(before, now, strict=True)]
    return before


async def test_every_job_says_what_it_said(database: Path) -> None:
    before = {job["id"]: job for job in recorded(database, "jobs")}
    async with Store(sqlite_url(database)) as store:
        jobs = [job for job_id in before if (job := await store.get_job(job_id))]
        waiting = await store.find_job("alice", "once")
    assert {job.id for job in jobs} == before.keys()
    for job in jobs:
        now, then = of_the_job(job), before[job.id]
        for name in then.keys() - ENDED - (OF_THE_RUN_BEFORE if job.run is None else set()):
            assert now[name] == includes(then[name], now[name]), (job.spec.name, name)
    assert waiting == next(job for job in jobs if job.spec.name == "pending")
    completed = next(job for job in jobs if job.spec.name == "completed")
    assert completed.spec.script is not None
    assert completed.spec.script.content == b"print('trains')\n"
    assert {job.state for job in jobs} > {JobState.PENDING, JobState.RUNNING, JobState.COMPLETED, JobState.FAILED}


async def test_everything_else_says_what_it_said(database: Path) -> None:
    tables = ("deliveries", "endpoints", "events", "run_records", "decisions")
    before = {table: recorded(database, table) for table in tables}
    async with Store(sqlite_url(database)) as store:
        endpoints = await store.load_endpoints()
        now: dict[str, list[Any]] = {
            "deliveries": await store.load_deliveries(),
            "endpoints": list(endpoints),
            "events": list(await store.events_after(0)),
            "run_records": list(await store.load_run_records()),
            "decisions": [
                decision
                for job in await store.list_jobs()
                for decision in reversed(await store.decisions_of(job.id, limit=99))
            ],
        }
    for table, entries in now.items():
        plain = sorted((json.loads(to_json(entry)) for entry in entries), key=subject_of)
        assert plain == includes(sorted(before[table], key=subject_of), plain), table
    answering = {each.name: each.live_version for each in endpoints}
    assert (answering["digits-completed"], answering["digits-running"]) == (2, None)


def subject_of(entry: Json) -> str:
    """What an entry is about; entries about one thing are in the order that they were made in."""
    return str(entry.get("id") or entry.get("name") or entry.get("job_id"))


async def test_the_database_of_before_is_kept_beside_it(database: Path) -> None:
    before = recorded(database, "jobs")
    async with Store(sqlite_url(database)):
        pass
    [copy] = backups_of(database)
    assert recorded(Path(copy), "jobs") == before
    assert recorded(database, "jobs") != before


# --- What was under way -----------------------------------------------------------------------------------------------


def named(actors: Actors, name: str) -> Job:
    return next(actor.job for actor in actors.registry.jobs.values() if actor.job.spec.name == name)


def with_checkpoint_of(database: Path, name: str, folder: Path) -> CheckpointStore:
    """What a broker holds beside its database of a job that is on its way to another node."""
    (job_id,) = (job["id"] for job in recorded(database, "jobs") if job["spec"]["name"] == name)
    checkpoints = CheckpointStore(folder)
    with checkpoints.begin(f"{job_id}-1", [CheckpointFile("latest.pt", 1, hashlib.sha256(b"x").hexdigest())]) as writer:
        writer.write(b"x")
        writer.finish()
    return checkpoints


async def test_what_was_under_way_goes_on(database: Path, tmp_path: Path) -> None:
    checkpoints = with_checkpoint_of(database, "moved", tmp_path / "checkpoints")
    async with (
        Store(sqlite_url(database)) as store,
        running_actors(store, ManualClock(NOW), checkpoints=checkpoints) as actors,
    ):
        running, moving, moved = (named(actors, name) for name in ("running", "moving", "moved"))
        assert {job.state for job in (running, moving, moved)} == {JobState.DISCONNECTED}
        first, epoch = await actors.connect(make_node("n1"), runs=[running.run_id, named(actors, "lost-twice").run_id])
        await actors.connect(make_node("n2"), runs=[moving.run_id])

        await actors.alive(running.run_id)
        await actors.report(running.run_id, 0.95, sequence=2)
        running = named(actors, "running")
        assert (running.state, running.attempts, running.cpu_seconds) == (JobState.RUNNING, 1, 2.0)
        assert [tier.state for tier in running.tiers] == [TierState.REACHED, TierState.REACHED]
        await actors.delivered(f"{running.id}-tier-1")
        await actors.delivered(f"{running.id}-tier-2")
        await actors.exit(running.run_id)
        assert (await actors.job(running.id)).state is JobState.COMPLETED

        await actors.alive(moving.run_id)
        assert named(actors, "moving").is_going_to("n1")
        await actors.registry.jobs[moving.id].send(RunExited(moving.run_id, 0, cpu_seconds=4.0, carried=True))
        moving = await actors.job(moving.id)
        assert (moving.state, moving.node_id, moving.run_id) == (JobState.STARTING, "n1", f"{moving.id}-2")
        assert (moving.earlier.migrations, moving.earlier.cpu_seconds) == (1, 4.0)

        wanted = await wanted_of(first, epoch)
        runs = {run.run_id: run for run in wanted.runs}
        assert runs[f"{moved.id}-2"].job.carried_run == f"{moved.id}-1"
        await actors.alive(moved.run_id)
        assert (await actors.job(moved.id)).carried_run == ""

        stopping = named(actors, "delivering-after-its-end")
        await actors.delivery(f"{stopping.id}-tier-1", DeliveryState.DELIVERED, value=0.82, sha256="c1")
        assert (await actors.job(stopping.id)).state is JobState.MISSED


async def test_a_run_that_an_earlier_version_heard_of_is_lost_if_its_node_comes_back_without_it(database: Path) -> None:
    async with Store(sqlite_url(database)) as store, running_actors(store, ManualClock(NOW)) as actors:
        before = named(actors, "lost-twice")
        assert run_of(before).heard
        await actors.connect(make_node("n1"))
        after = named(actors, "lost-twice")
        assert (after.attempts, after.earlier.lost) == (4, 3)
        assert after.cpu_seconds == before.cpu_seconds == 7.0


# --- The migration itself ---------------------------------------------------------------------------------------------


async def test_more_jobs_than_are_held_together_are_all_rewritten(database: Path) -> None:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute(
            "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 450) "
            "INSERT INTO jobs SELECT 'more' || n, tenant, state, submitted_at, NULL, "
            "json_set(content, '$.id', 'more' || n, '$.idempotency_key', '') FROM jobs, number "
            "WHERE json_extract(content, '$.spec.name') = 'running'"
        )
        connection.commit()
    async with Store(sqlite_url(database)) as store:
        more = [job for job in await store.list_jobs(limit=1000) if job.id.startswith("more")]
    assert len(more) == 450
    assert {(job.run_id, job.node_id) for job in more} == {(f"{job.id}-1", "n1") for job in more}


async def test_an_int8_model_is_one_of_the_cheap_variants(database: Path) -> None:
    said = json.dumps({"shipped": True, "reason": "", "made": "dynamic", "value": 0.9, "size_bytes": 7})
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE deliveries SET content = json_set(content, '$.int8', json(?))", (said,))
        connection.execute(
            "UPDATE endpoints SET content = json_set(content, '$.versions[0].int8', json(?), "
            "'$.versions[1].int8', NULL, '$.coming', "
            "json_array(json_object('delivery', (SELECT json(content) FROM deliveries LIMIT 1), "
            "'node_id', 'n1', 'metric', '', 'direction', 'max', 'replace', json('false')))) "
            "WHERE name = 'digits-completed'",
            (said,),
        )
        connection.commit()
    told = (CheapVariant(VariantKind.INT8, shipped=True, made="dynamic", value=0.9, size_bytes=7),)
    async with Store(sqlite_url(database)) as store:
        endpoints = {endpoint.name: endpoint for endpoint in await store.load_endpoints()}
        assert all(delivery.cheap_variants == told for delivery in await store.load_deliveries())
    completed = endpoints.pop("digits-completed")
    assert [version.cheap_variants for version in completed.versions] == [told, ()]
    assert [deployment.delivery.cheap_variants for deployment in completed.coming] == [told]
    assert not any(version.cheap_variants for endpoint in endpoints.values() for version in endpoint.versions)


async def test_a_damaged_job_is_found_by_whoever_reads_it_and_harms_no_other(database: Path) -> None:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        [(damaged, whole)] = connection.execute("SELECT min(id), max(id) FROM jobs")
        connection.execute("UPDATE jobs SET content = '{\"id\": 7' WHERE id = ?", (damaged,))
        connection.commit()
    async with Store(sqlite_url(database)) as store:
        assert await store.get_job(whole) is not None
        with pytest.raises(StoreDamagedError):
            await store.get_job(damaged)
