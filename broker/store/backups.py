"""Copies of a database's file: from before it was upgraded, beside it, and as it is."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from tiercel.broker.store.schema import NEWEST_REVISION, is_older_revision
from tiercel.core.errors import StoreDamagedError

KEPT_BACKUPS = 2
_SUFFIX = ".backup"


def backups_of(database: Path) -> list[str]:
    """Paths of the copies of a database, the newest first."""
    found = database.parent.glob(f"{database.name}.*{_SUFFIX}") if database.name else []
    return [str(path) for path in sorted(found, key=lambda path: path.stat().st_mtime_ns, reverse=True)]


def back_up_before_upgrade(database: Path) -> None:
    """Copy a database that is about to be upgraded to ``NAME.REVISION.backup``; the last two copies stay.

    Nothing is done about a database that is new, up to date, or not ours. Blocks while the disk writes.

    Args:
        database: Its file.

    Raises:
        sqlite3.Error: It cannot be read.
        OSError: The copy cannot be written.
    """
    if not database.exists() or not database.stat().st_size:
        return
    with contextlib.closing(sqlite3.connect(database)) as source:
        revision = _revision(source)
        if revision and is_older_revision(revision):
            _write(source, database.with_name(f"{database.name}.{revision}{_SUFFIX}"))
            for old in backups_of(database)[KEPT_BACKUPS:]:
                Path(old).unlink()


def _revision(connection: sqlite3.Connection) -> str:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone():
        return ""
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(row[0]) if row else ""


def copy_database(database: Path, target: Path) -> None:
    """Copy a database as it is in one moment, while others write to it; blocks while the disk writes.

    Args:
        database: Its file.
        target: Where to; readable by its owner only, whole or not there.

    Raises:
        sqlite3.Error: It cannot be read, or there is no room.
        OSError: The copy cannot be written.
    """
    # Who only reads would leave files of SQLite's beside a database that nobody else has open.
    with contextlib.closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=rw", uri=True)) as source:
        _write(source, target)


def check_database(path: Path) -> None:
    """Check that a file is a whole database of this version or an older one.

    Raises:
        StoreDamagedError: It is not.
    """
    try:
        with contextlib.closing(sqlite3.connect(path)) as database:
            found = database.execute("PRAGMA quick_check(1)").fetchone()
            revision = _revision(database)
    except sqlite3.Error as error:
        raise StoreDamagedError(f"this copy of the database cannot be read ({error})") from error
    if found != ("ok",):
        raise StoreDamagedError("this copy of the database is damaged")
    if revision != NEWEST_REVISION and not is_older_revision(revision):
        raise StoreDamagedError("this copy of the database is another version's; install that version of Tiercel")


def _write(source: sqlite3.Connection, target: Path) -> None:
    scratch = target.with_name(f"{target.name}.new")
    scratch.unlink(missing_ok=True)
    try:
        # Made by us, since SQLite would let others read it.
        descriptor = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "rb"), contextlib.closing(sqlite3.connect(scratch)) as copy:
            source.backup(copy)
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)
