"""One broker at a time on a state directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from tiercel.broker.domain.errors import UnavailableError
from tiercel.broker.state_folder import refuse_state_dir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def state_lock(state_dir: Path) -> Iterator[None]:
    """Hold ``broker.lock`` inside; the kernel lets go of it however the process ends.

    Args:
        state_dir: The broker's state directory; exists.

    Raises:
        InvalidSpecError: The directory cannot be written to.
        UnavailableError: Another broker holds it.
    """
    # Never deleted: another process may be waiting on this very file.
    try:
        file = (state_dir / "broker.lock").open("a+", encoding="ascii")
    except OSError as error:
        raise refuse_state_dir(state_dir, error.strerror or str(error)) from error
    with file:
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
