"""One broker at a time on a state directory, and one ``tiercel up``."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tiercel.broker.state_folder import prepare_state_dir, refuse_state_dir
from tiercel.core.errors import UnavailableError
from tiercel.core.locks import LockHeldError, take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextlib.contextmanager
def broker_lock(state_dir: Path) -> Iterator[None]:
    """Hold the lock of a broker.

    Args:
        state_dir: The broker's state directory; exists.

    Raises:
        InvalidSpecError: The directory cannot be written to.
        UnavailableError: Another broker holds it.
    """
    with _held(
        state_dir / "broker.lock",
        lambda pid: f"another broker (pid {pid}) runs on {state_dir}; stop it, or choose another state directory",
    ):
        yield


@contextlib.contextmanager
def up_lock(path: Path) -> Iterator[None]:
    """Hold the lock of ``tiercel up``.

    Args:
        path: The lock file; its folder is made, and closed to others.

    Raises:
        InvalidSpecError: The folder cannot be used.
        UnavailableError: Another process holds it; names its pid.
    """
    prepare_state_dir(path.parent)
    with _held(
        path,
        lambda pid: (
            f"Tiercel is up already in {path.parent} (process {pid}); stop it with "
            f"'tiercel down --state-dir {path.parent}', or choose another --state-dir."
        ),
    ):
        yield


@contextlib.contextmanager
def _held(path: Path, sentence: Callable[[int | str], str]) -> Iterator[None]:
    try:
        lock = take(path)
    except LockHeldError as error:
        raise UnavailableError(sentence(error.pid or "unknown")) from None
    except OSError as error:
        raise refuse_state_dir(path.parent, error.strerror or str(error)) from error
    with lock:
        yield
