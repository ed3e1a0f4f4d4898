"""What a database's failure means: whether anything was changed, and what is to be done about it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tiercel.broker.store import errors
from tiercel.broker.store.backups import backups_of
from tiercel.core.errors import TiercelError

# SQLite's result codes; the byte at the end says what it is about, the rest says more.
_CODE = 0xFF
# After these nobody knows whether the last transaction is in the file.
_UNSURE = frozenset({sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC})
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
# A file system that is full, cannot be written to, or is failing.
_NOT_WRITTEN = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM})


def failure_of(error: BaseException, where: str) -> TiercelError:
    """What to raise for a driver's error.

    Args:
        error: The driver's error, or one of SQLAlchemy's around it.
        where: The database: a file's path, or a URL without its password.
    """
    words = cause_of(error)
    extended = getattr(getattr(error, "orig", None) or error, "sqlite_errorcode", None)
    if extended is None or extended in _UNSURE:
        return errors.no_answer(where, words)
    code = extended & _CODE
    if code in _DAMAGED:
        return errors.damaged(where, words, backups_of(Path(where)))
    if code == sqlite3.SQLITE_FULL:
        return errors.no_space(str(Path(where).parent))
    if code in _LOCKED:
        return errors.locked(where)
    return errors.not_written(where, words) if code in _NOT_WRITTEN else errors.no_answer(where, words)


def cause_of(error: BaseException) -> str:
    """The driver's own words, without the statement and its parameters: those may hold a tenant's script."""
    return str(getattr(error, "orig", None) or error).strip().rstrip(".")
