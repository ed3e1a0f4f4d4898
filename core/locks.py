"""Lock files that say which process has a place to itself: held with flock, the holder's pid inside.

A lock goes with its process, however that ends, so a file that is left behind means nothing. It is never deleted:
another process may be waiting for this very file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_MOST_BYTES = 256


class LockHeldError(Exception):
    """Another process holds the lock.

    Args:
        path: The lock file.
        pid: Who holds it, or 0 where the file does not say.
    """

    def __init__(self, path: Path, pid: int) -> None:
        super().__init__(f"process {pid or 'unknown'} holds {path}")
        self.path = path
        self.pid = pid


class Lock:
    """A lock that is held until the context is left. Made by :func:`take`, or from a descriptor that was inherited.

    Args:
        descriptor: Of the file; a process that inherits it holds the same lock.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.descriptor)

    def sign(self, name: str = "") -> None:
        """Write into the file that this process holds it."""
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, f"{os.getpid()} {name}".rstrip().encode() + b"\n", 0)


def take(path: Path, name: str = "") -> Lock:
    """Take a lock and sign it.

    Args:
        path: The lock file, made where it is missing.
        name: See :meth:`Lock.sign`.

    Raises:
        LockHeldError: Another process holds it.
        OSError: The file cannot be opened or written.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockHeldError(path, read_pid(path)) from None
        lock = Lock(descriptor)
        lock.sign(name)
    except BaseException:
        os.close(descriptor)
        raise
    return lock


def is_held(path: Path) -> bool:
    """Whether a process holds the lock; one that is missing is not held."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        # Shared, so that two who look do not see each other.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def open_holder(path: Path) -> tuple[int, int] | None:
    """The process that holds the lock as (pid, pidfd), or None when nobody does; the caller closes the pidfd.

    Raises:
        LockHeldError: Somebody holds it, but the file does not say who.
    """
    if not is_held(path):
        return None
    pid = read_pid(path)
    if not pid:
        raise LockHeldError(path, 0)
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if is_held(path) and read_pid(path) == pid:
        return pid, pidfd
    # It went while we looked, and its number may belong to another by now.
    os.close(pidfd)
    return None


def read_pid(path: Path) -> int:
    """Who signed the lock last; 0 where nobody did."""
    words = _words(path)
    return int(words[0]) if words and words[0].isdigit() else 0


def read_name(path: Path) -> str:
    """What the last holder called itself; empty where it did not say."""
    words = _words(path)
    return words[1] if len(words) > 1 else ""


def _words(path: Path) -> list[str]:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(_MOST_BYTES).decode(errors="replace").split()
    return []
