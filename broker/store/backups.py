"""Copies of a database's file from before it was upgraded, beside it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from tiercel.broker.store.schema import is_older_revision

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
            _copy(source, database.with_name(f"{database.name}.{revision}{_SUFFIX}"))
            for old in backups_of(database)[KEPT_BACKUPS:]:
                Path(old).unlink()


def _revision(connection: sqlite3.Connection) -> str:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone():
        return ""
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(row[0]) if row else ""


def _copy(source: sqlite3.Connection, target: Path) -> None:
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
