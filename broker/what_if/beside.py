"""Two things worked out at once, where there is a second processor: one of them in a process of its own."""

from __future__ import annotations

import os
import pickle
import signal
import warnings
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def both(first: Callable[[], T], second: Callable[[], T]) -> tuple[T, T]:
    """What the two give.

    The first runs in a fork of this process, which shares what is there already and ends with what it has to do. Where
    that comes to nothing it is done here, so that what it raises is raised.

    Args:
        first: Gives what can be pickled; touches nothing that outlives it.
        second: Runs here.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Of threads that a fork does not have: those of NumPy, which wait for work and hold nothing.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(reading)
        _tell(first, writing)
    os.close(writing)
    try:
        here = second()
        with os.fdopen(reading, "rb", closefd=False) as pipe:
            told = pipe.read()
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.close(reading)
        os.waitpid(child, 0)
    # What a fork of this very process wrote.
    return (pickle.loads(told) if told.endswith(pickle.STOP) else first()), here  # noqa: S301


def _tell(work: Callable[[], T], writing: int) -> None:
    """Write what the work gives, and end."""
    try:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(pickle.dumps(work()))
    finally:
        os._exit(0)
