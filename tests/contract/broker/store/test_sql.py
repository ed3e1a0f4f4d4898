"""What holds for a database in a file: damage, strangers, newer programs, and a broker that is killed."""

from __future__ import annotations

import asyncio
import contextlib
import math
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, create_engine, inspect, text

from testing.stored import stored_delivery, stored_event, stored_job
from tiercel.broker.store.schema import NEWEST_REVISION, apply_revisions, upgrade_schema
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.broker.store.tables import metadata
from tiercel.core.endpoints import Endpoint, Version
from tiercel.core.errors import CannotWriteError, StoreDamagedError, TiercelError, UnavailableError


def change(database: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute(statement)
        connection.commit()


async def assert_cannot_open(database: Path, words: str, kind: type[TiercelError] = UnavailableError) -> None:
    with pytest.raises(kind, match=words) as caught:
        async with Store(sqlite_url(database)):
            pass
    assert str(database) in caught.value.message


async def test_a_new_file_is_its_owners_only(database: Path) -> None:
    async with Store(sqlite_url(database)) as store:
        await store.save(jobs=[stored_job("a")])
        modes = {path.name: path.stat().st_mode & 0o777 for path in database.parent.iterdir()}
    assert modes["broker.sqlite"] == 0o600
    assert set(modes.values()) == {0o600}


async def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    await assert_cannot_open(tmp_path / "gone" / "broker.sqlite", "cannot be opened: .*No such file or directory")


async def test_a_file_that_is_no_database_is_left_alone(database: Path) -> None:
    database.write_bytes(b"something else, and long enough to be looked at" * 100)
    before = database.read_bytes()
    await assert_cannot_open(database, r"is damaged \(file is not a database\)", StoreDamagedError)
    assert database.read_bytes() == before


async def test_a_database_of_somebody_else_is_left_alone(database: Path) -> None:
    change(database, "CREATE TABLE theirs (id INTEGER)")
    await assert_cannot_open(database, "somebody else's tables")
    with contextlib.closing(sqlite3.connect(database)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]
    assert names == ["theirs"]


async def test_a_database_of_a_newer_tiercel_is_left_alone(database: Path) -> None:
    async with Store(sqlite_url(database)):
        pass
    change(database, "UPDATE alembic_version SET version_num = 'from-the-future'")
    await assert_cannot_open(database, "newer version of Tiercel; install that version")


async def test_a_damaged_entry_is_named_without_its_content(database: Path) -> None:
    async with Store(sqlite_url(database)) as store:
        await store.save(jobs=[stored_job("a")], events=[stored_event(1)])
        change(database, "UPDATE jobs SET content = '{}'")
        change(database, "UPDATE events SET content = 'secret nonsense'")
        with pytest.raises(StoreDamagedError, match="in Job: a stored Job cannot be read: id: Field required"):
            await store.list_jobs()
        with pytest.raises(StoreDamagedError, match="damaged entry in JobEvent") as caught:
            await store.events_after(0)
        assert "secret" not in caught.value.message


async def test_a_missing_script_is_damage(database: Path) -> None:
    async with Store(sqlite_url(database)) as store:
        await store.save(jobs=[stored_job("a")])
        change(database, "DELETE FROM scripts")
        with pytest.raises(StoreDamagedError, match="the script of job a is missing"):
            await store.get_job("a")


async def test_a_locked_database_is_given_up_in_time_and_works_on_afterwards(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiercel.broker.store.sql.LOCK_SECONDS", 0.2)
    async with Store(sqlite_url(database)) as store:
        with contextlib.closing(sqlite3.connect(database)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(CannotWriteError, match=r"program has locked it.*nothing was changed.*try again"):
                await store.save(jobs=[stored_job("a")])
            assert await store.list_jobs() == [], "reading goes on"
        await store.save(jobs=[stored_job("a")])
        assert await store.get_job("a") == stored_job("a")


async def test_content_that_is_refused_is_not_held_for_a_database_that_does_not_answer(database: Path) -> None:
    async with Store(sqlite_url(database)) as store:
        with pytest.raises(TiercelError, match="refused what was to be saved: NOT NULL") as caught:
            # SQLite takes NaN for NULL
            await store.save(jobs=[stored_job("a"), stored_job("b", submitted_at=math.nan)])
        assert not isinstance(caught.value, UnavailableError)
        assert await store.list_jobs() == []


async def test_writers_and_readers_at_the_same_time_get_along(database: Path) -> None:
    async with Store(sqlite_url(database)) as store, asyncio.TaskGroup() as tasks:
        for number in range(40):
            tasks.create_task(store.save(jobs=[stored_job(f"job{number}")], events=[stored_event(number + 1)]))
            tasks.create_task(store.list_jobs())
    async with Store(sqlite_url(database)) as store:
        assert len(await store.list_jobs()) == 40
        assert await store.last_sequence() == 40


def test_the_migrations_lead_to_the_tables_that_an_empty_database_gets() -> None:
    revisions = []
    for bring_up_to_date in (apply_revisions, upgrade_schema):
        engine = create_engine("sqlite://")
        with engine.begin() as connection:
            bring_up_to_date(connection)
            assert compare_metadata(MigrationContext.configure(connection), metadata) == []
            revisions.append(connection.scalar(text("SELECT version_num FROM alembic_version")))
        engine.dispose()
    assert revisions == [NEWEST_REVISION, NEWEST_REVISION]


async def test_what_was_stored_before_there_were_variants_has_none(database: Path) -> None:
    version = Version(1, "a", 1, "accuracy", 0.9, 1.0, "ab")
    endpoint = Endpoint("digits", "ada", 2, (version,), "n1")
    job, delivery = stored_job("a"), stored_delivery("a", 1)
    async with Store(sqlite_url(database)) as store:
        await store.save(jobs=[job], deliveries=[delivery], endpoints=[endpoint])
    for table, field in (("endpoints", "versions[0].variant"), ("deliveries", "variant"), ("jobs", "spec.variant")):
        change(database, f"UPDATE {table} SET content = json_remove(content, '$.{field}')")
    async with Store(sqlite_url(database)) as store:
        assert await store.load_endpoints() == [endpoint]
        assert await store.load_deliveries() == [delivery]
        assert await store.get_job("a") == job
        # What is stored from now on is read back as it is.
        small = replace(endpoint, versions=(replace(version, variant="small"),))
        await store.save(endpoints=[small], deliveries=[replace(delivery, variant="small")])
        assert await store.load_endpoints() == [small]
        assert await store.load_deliveries() == [replace(delivery, variant="small")]


class StoppedError(Exception):
    """Something ended a migration before it was done."""


async def test_a_migration_that_is_cut_short_leaves_nothing_behind(database: Path) -> None:
    store = Store(sqlite_url(database))

    def cut_short(connection: Connection) -> None:
        upgrade_schema(connection)
        assert "jobs" in inspect(connection).get_table_names()
        raise StoppedError

    engine = store.make_engine()
    with pytest.raises(StoppedError):
        async with engine.begin() as connection:
            await connection.run_sync(cut_short)
    await engine.dispose()
    with contextlib.closing(sqlite3.connect(database)) as empty:
        assert empty.execute("SELECT name FROM sqlite_master").fetchall() == []
    async with store:
        assert await store.list_jobs() == []


WRITER = """
import asyncio, itertools, pathlib, sys
from testing.stored import stored_event, stored_job
from tiercel.broker.store.sql import Store, sqlite_url

async def main():
    async with Store(sqlite_url(pathlib.Path(sys.argv[1]))) as store:
        for number in itertools.count(1):
            await store.save(jobs=[stored_job(f"job{number}")], events=[stored_event(number, f"job{number}")])
            print(number, flush=True)

asyncio.run(main())
"""


async def test_what_was_saved_survives_a_killed_process_whole(database: Path) -> None:
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(database), stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[4]
    )
    assert writer.stdout is not None
    async with asyncio.timeout(60):
        saved = 0
        while saved < 50:
            saved = int(await writer.stdout.readline())
        writer.kill()
        rest = (await writer.stdout.read()).split()
        await writer.wait()
    saved = max([saved, *map(int, rest)])
    async with Store(sqlite_url(database)) as store:
        last = await store.last_sequence()
        assert last in {saved, saved + 1}  # killed between the commit and the message
        assert {job.id for job in await store.list_jobs()} == {f"job{number}" for number in range(1, last + 1)}
