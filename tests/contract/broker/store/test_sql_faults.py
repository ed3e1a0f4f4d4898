"""A database on a disk that is full, and one whose file is damaged: what is said, and what is left of it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from testing.small_disk import fill, small_disk
from testing.stored import stored_event, stored_job
from tiercel.broker.store.backups import KEPT_BACKUPS, back_up_before_upgrade, backups_of
from tiercel.broker.store.schema import apply_revisions, is_older_revision
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.core.errors import CannotWriteError, StoreDamagedError, TiercelError


async def test_a_full_disk_refuses_what_is_saved_and_is_read_all_the_same(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4 * 1024 * 1024) as disk:
        async with Store(sqlite_url(disk / "broker.sqlite")) as store:
            await store.save(jobs=[stored_job("a")], events=[stored_event(1)])
            filler = fill(disk)
            large = stored_job("b", script=bytes(512 * 1024))
            with pytest.raises(CannotWriteError, match=rf"no space left in {disk}\); nothing was changed. Make room"):
                await store.save(jobs=[large])
            assert [job.id for job in await store.list_jobs()] == ["a"]
            assert await store.last_sequence() == 1
            filler.unlink()
            await store.save(jobs=[large], events=[stored_event(2)])
            assert [job.id for job in await store.list_jobs()] == ["a", "b"]


async def test_what_was_saved_survives_a_loss_of_power(tmp_path: Path) -> None:
    engine = Store(sqlite_url(tmp_path / "broker.sqlite")).make_engine()
    async with engine.connect() as connection:
        answer = await connection.exec_driver_sql("PRAGMA synchronous")
        assert answer.scalar() == 2, "the disk is waited for at each commit: FULL"
    await engine.dispose()


async def test_a_garbled_file_says_what_to_do_and_never_to_try_again(database: Path) -> None:
    async with Store(sqlite_url(database)) as store:
        await store.save(jobs=[stored_job(f"j{number}", script=os.urandom(20_000)) for number in range(20)])
    whole = database.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:4096] + os.urandom(len(whole) - 4096), b"\0" * len(whole)):
        database.write_bytes(damaged)
        with pytest.raises(StoreDamagedError, match=r"is damaged \(.*\)\. Stop the broker") as caught:
            async with Store(sqlite_url(database)) as store:
                await store.list_jobs()
        assert "ry again" not in caught.value.message
        assert "start without it" in caught.value.message, "there is no copy"


async def test_a_file_that_is_garbled_while_it_is_in_use_is_damaged(database: Path) -> None:
    async with Store(sqlite_url(database)) as store:
        await store.save(jobs=[stored_job(f"j{number}", script=os.urandom(20_000)) for number in range(20)])
        with contextlib.closing(sqlite3.connect(database)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = database.stat().st_size
        with database.open("r+b") as file:
            file.seek(4096)
            file.write(os.urandom(size - 4096))
        (database.parent / "broker.sqlite.0001.backup").touch()
        with pytest.raises(StoreDamagedError, match=r"copy .*broker\.sqlite\.0001\.backup to its place"):
            await store.list_jobs()
        with pytest.raises(StoreDamagedError, match=r"copy .*broker\.sqlite\.0001\.backup to its place"):
            await store.save(jobs=[stored_job("new")])


async def older(database: Path, revision: str) -> None:
    """A database as an older Tiercel left it, with one job."""
    database.unlink(missing_ok=True)
    engine = create_engine(f"sqlite:///{database}")
    with engine.begin() as connection:
        apply_revisions(connection, revision)
        connection.exec_driver_sql(
            "INSERT INTO jobs (id, tenant, state, submitted_at, content) VALUES (?, 'a', 'pending', 1, '{}')",
            (f"of-{revision}",),
        )
    engine.dispose()


async def test_a_database_is_copied_before_it_is_upgraded_and_the_last_two_copies_stay(database: Path) -> None:
    for number, name in enumerate(["0000", "000x", "0001"]):
        old = database.with_name(f"{database.name}.{name}.backup")
        old.touch()
        os.utime(old, (number, number))
    assert is_older_revision("0001")
    assert not is_older_revision("from-the-future")
    await older(database, "0001")
    async with Store(sqlite_url(database)):
        pass
    copies = backups_of(database)
    assert [Path(copy).name for copy in copies] == [f"broker.sqlite.{name}.backup" for name in ("0001", "000x")]
    assert len(copies) == KEPT_BACKUPS
    assert stat.S_IMODE(Path(copies[0]).stat().st_mode) == 0o600
    with contextlib.closing(sqlite3.connect(copies[0])) as copy:
        assert copy.execute("SELECT id FROM jobs").fetchall() == [("of-0001",)]
        assert copy.execute("SELECT version_num FROM alembic_version").fetchall() == [("0001",)]
    before = Path(copies[0]).stat().st_mtime_ns
    async with Store(sqlite_url(database)):
        pass
    assert Path(copies[0]).stat().st_mtime_ns == before, "what is up to date is not copied"


async def test_without_room_for_a_copy_nothing_is_upgraded(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1024 * 1024) as disk:
        database = disk / "broker.sqlite"
        await older(database, "0001")
        fill(disk)
        with pytest.raises(TiercelError, match="cannot be opened"):
            async with Store(sqlite_url(database)):
                pass
        (disk / "filler").unlink()
        with contextlib.closing(sqlite3.connect(database)) as unchanged:
            assert unchanged.execute("SELECT version_num FROM alembic_version").fetchall() == [("0001",)]
        assert backups_of(database) == []
        back_up_before_upgrade(database)
        assert len(backups_of(database)) == 1
