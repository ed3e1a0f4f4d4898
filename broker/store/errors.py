"""What stores say when something is wrong, in one place, so that all of them say the same."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence
from pathlib import Path

from tiercel.core.blobs import BlobError
from tiercel.core.errors import (
    CannotWriteError,
    InvalidSpecError,
    StoreDamagedError,
    TiercelError,
    UnavailableError,
    wrong_field,
)


def not_open() -> UnavailableError:
    """Somebody uses a store before it was opened or after it was closed."""
    return UnavailableError("The broker's store is not open; the broker is starting or stopping, try again.")


def second_job_with_key() -> InvalidSpecError:
    """A second job came under an idempotency key that its tenant has used."""
    message = "Another job was submitted under this idempotency key; use a key of its own for each job."
    return InvalidSpecError(message, field="idempotency_key")


def cannot_open(where: str, cause: str) -> UnavailableError:
    """The database cannot be reached or made."""
    return UnavailableError(f"The broker's database {where} cannot be opened: {cause}. Mend that, and try again.")


def no_answer(where: str, cause: str) -> UnavailableError:
    """An operation failed or took too long; one that writes may or may not have been carried out."""
    return UnavailableError(f"The broker's database {where} does not answer: {cause}. Try again.")


def refused(where: str, cause: str) -> TiercelError:
    """The database works but does not take this content; trying again would not help."""
    return TiercelError(f"The broker's database {where} refused what was to be saved: {cause}. Nothing was saved.")


def no_space(folder: str) -> CannotWriteError:
    """The file system is full."""
    return CannotWriteError(
        f"The broker cannot write to its disk (no space left in {folder}); nothing was changed. Make room and try "
        "again."
    )


@contextlib.contextmanager
def room_on(where: Path | str) -> Iterator[None]:
    """What is said of a disk that is full."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise no_space(str(where)) from error
        raise


@contextlib.contextmanager
def taking_in(where: Path | str, field: str) -> Iterator[None]:
    """The same, and what is said of contents that are not what was announced in a field."""
    with room_on(where):
        try:
            yield
        except BlobError as error:
            raise wrong_field(field, str(error)) from error


def locked(where: str) -> CannotWriteError:
    """Somebody else writes to the database, and does not come to an end."""
    return CannotWriteError(
        f"The broker cannot write to its database {where} (another program has locked it); nothing was changed. End "
        "that program and try again."
    )


def not_written(where: str, cause: str) -> CannotWriteError:
    """The file system refuses to be written to, for another reason."""
    return CannotWriteError(
        f"The broker cannot write to its database {where} ({cause}); nothing was changed. Look after the disk and try "
        "again."
    )


def damaged(where: str, cause: str, backups: Sequence[str]) -> StoreDamagedError:
    """The database's file is not what it was; ``backups`` are copies of it, the newest first."""
    return StoreDamagedError(
        f"The broker's database {where} is damaged ({cause}). Stop the broker, put the file aside together with those "
        f"beside it that end in -wal and -shm, and {_remedy(backups)}."
    )


def unreadable(where: str, what: str, cause: str, backups: Sequence[str]) -> StoreDamagedError:
    """Something stored cannot be read back."""
    return StoreDamagedError(
        f"The broker's database {where} holds a damaged entry in {what}: {cause}. Stop the broker, put the file aside "
        f"together with those beside it that end in -wal and -shm, and {_remedy(backups)}."
    )


def _remedy(backups: Sequence[str]) -> str:
    if backups:
        return f"copy {backups[0]} to its place: that is the database as it was before Tiercel was last upgraded"
    return "put a copy of your own in its place, or start without it: then jobs and endpoints of before are forgotten"
