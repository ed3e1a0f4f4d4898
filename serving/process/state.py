"""The lock that says a server lives, and the file that says where it listens."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from tiercel.serving.errors import StartupError


@contextlib.contextmanager
def held_lock(path: Path) -> Iterator[int]:
    """Hold the lock for as long as the context lasts; it ends with the process in any case.

    Gives the file's descriptor: a process that inherits it holds the same lock.

    Raises:
        StartupError: Another server holds it, or the file cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StartupError(
            f"The lock file {path} cannot be opened: {error.strerror}. Give another --lock-file."
        ) from error
    with os.fdopen(descriptor, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = file.read(20).strip()
            raise StartupError(
                f"Another inference server{f' (pid {holder})' if holder else ''} holds {path}. "
                "Use that one, end it, or give another --lock-file."
            ) from error
        name_holder(descriptor)
        yield descriptor


@contextlib.contextmanager
def inherited_lock(descriptor: int) -> Iterator[int]:
    """Go on holding a lock that another process took; :func:`name_holder` once it is ours alone."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def name_holder(descriptor: int) -> None:
    """Write into the lock file that this process holds it."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def write_state(path: Path, http: str, grpc: str) -> None:
    """Write pid and addresses, at once or not at all.

    Raises:
        StartupError: The file cannot be written.
    """
    content = json.dumps({"pid": os.getpid(), "http": http, "grpc": grpc})
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(content + "\n")
        temporary.replace(path)
    except OSError as error:
        raise StartupError(
            f"The state file {path} cannot be written: {error.strerror}. Give another --state-file."
        ) from error
