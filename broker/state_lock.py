"""One broker at a time on a state directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from tiercel.broker.domain.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def state_lock(state_dir: Path) -> Iterator[None]:
    """Hold ``broker.lock`` inside; the kernel lets go of it however the process ends.

    Args:
        state_dir: The broker's state directory; exists.

    Raises:
        UnavailableError: Another broker holds it.
    """
    # Never deleted: another process may be waiting on this very file.
    with (state_dir / "broker.lock").open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise UnavailableError(
                f"another broker (pid {holder}) runs on {state_dir}; stop it, or choose another state directory"
            ) from None
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
