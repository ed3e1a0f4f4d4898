"""A server on one core and whoever asks it on the others, so that neither takes CPU from the other."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from benchmarks.serving.processes import ServerProcesses


def available() -> list[int]:
    """Cores that this thread may use."""
    return sorted(os.sched_getaffinity(0))


@contextlib.contextmanager
def kept_on(cores: set[int]) -> Iterator[None]:
    """This thread, and what it starts, stays on these cores; what was started stays there afterwards, too."""
    own = set(available())
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


@contextlib.contextmanager
def apart(start: contextlib.AbstractContextManager[ServerProcesses]) -> Iterator[ServerProcesses]:
    """Start a server on the first core, so that it knows of no other, and stay off that core until it has ended.

    Where there is only one core, all of them share it.
    """
    first, *others = available()
    with contextlib.ExitStack() as stack:
        with kept_on({first}):
            server = stack.enter_context(start)
        stack.enter_context(kept_on(set(others) or {first}))
        yield server
