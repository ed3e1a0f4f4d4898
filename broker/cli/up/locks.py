"""Lock files that say which process owns a state directory: held with flock, the pid inside.

A lock goes with its process, however it ends, so a file that is left behind means nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from tiercel.broker.domain.errors import UnavailableError
from tiercel.broker.state_folder import prepare_state_dir, refuse_state_dir


@contextlib.contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold a lock.

    Raises:
        InvalidSpecError: The folder cannot be used.
        UnavailableError: Another process holds it; names its pid.
    """
    prepare_state_dir(path.parent)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise refuse_state_dir(path.parent, error.strerror or str(error)) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UnavailableError(
                f"Tiercel is up already in {path.parent} (process {_read_pid(path) or 'unknown'}); stop it with "
                f"'tiercel down --state-dir {path.parent}', or choose another --state-dir."
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether a process holds the lock."""
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
        UnavailableError: Somebody holds it, but the file does not say who.
    """
    if not is_held(path):
        return None
    pid = _read_pid(path)
    if pid is None:
        raise UnavailableError(f"A process holds {path} without saying which; see who with 'fuser {path}'.")
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if is_held(path) and _read_pid(path) == pid:
        return pid, pidfd
    # It went while we looked, and its number may belong to another by now.
    os.close(pidfd)
    return None


def read_name(path: Path) -> str:
    """What the last holder of a lock calls itself, or empty where it does not say."""
    words = path.read_text(encoding="utf-8", errors="replace").split()
    return words[1] if len(words) > 1 else ""


def _read_pid(path: Path) -> int | None:
    words = path.read_text(encoding="utf-8", errors="replace").split()
    return int(words[0]) if words and words[0].isdigit() else None
