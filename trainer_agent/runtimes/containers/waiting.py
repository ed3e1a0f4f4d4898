"""What the program of a container does that waits for its run: it imports what runs import first, and becomes the run.

It does not fork: the container is the run's from then on, and nobody else's. It speaks by standard output, in lines,
and is ordered by standard input; when that ends, so does it. What packages write when they are imported goes nowhere.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tiercel.trainer_agent.runtimes.processes import minder
from tiercel.trainer_agent.runtimes.warm import preloading
from tiercel.trainer_agent.runtimes.warm import script as warm_script
from tiercel.trainer_agent.runtimes.warm.preloading import (
    Preloader,
    UnfitError,
    why_not_in,
    why_not_like_this,
    why_not_threads,
)
from tiercel.trainer_agent.runtimes.warm.script import COLD, ENTERED, WarmOrder, become, run

NO_LIBRARY: Final = "no library"
"""Said where the image has no such module as this."""

START: Final = (
    "import sys; del sys.path[0]; at_start = frozenset(sys.modules)\n"
    f"try:\n from {__name__} import main\n"
    f"except ImportError:\n print({NO_LIBRARY!r}); raise SystemExit(0)\n"
    "script = main(at_start, *sys.argv[1:]); script and script()"
)
"""What Python is asked to do."""

LEFT_OUT: Final = b'{"left_out": '
"""How all begins that it says before it is ordered."""

LENGTH_BYTES: Final = 16
"""An order begins with its length, as so many hexadecimal digits: one that breaks off is none."""

_MOST_BEGINNINGS: Final = 8
# Of the container, not of the run: what the engine sets where nobody else does.
_OF_CONTAINER: Final = ("HOSTNAME", "PATH")


def digest() -> str:
    """Tells one version of this code from another; an image may have been built long ago."""
    sources = [Path(module.__file__ or "").read_bytes() for module in (sys.modules[__name__], preloading, warm_script)]
    return hashlib.sha256(b"\0".join(sources)).hexdigest()[:32]


def main(at_start: frozenset[str], beginning: str, *names: str) -> Callable[[], None] | None:
    """Wait for a run, and return what is left to do for it; nothing where none comes.

    Args:
        at_start: Names of the modules that every interpreter has from its start.
        beginning: Which try it is to import all that it should.
        names: What to import.
    """
    output, errors = os.dup(1), os.dup(2)
    _write_to(os.devnull)
    variables = dict(os.environ)
    preloader = Preloader()
    try:
        failed = preloader.load(names)
    except UnfitError as error:
        _say(output, left_out={error.name: error.reason})
        if int(beginning) < _MOST_BEGINNINGS:
            kept = [name for name in names if name != error.name and not name.startswith(f"{error.name}.")]
            _restore(output, errors)
            again = [*sys.orig_argv[:2], START, str(int(beginning) + 1), *kept]
            os.execvpe(again[0], again, variables)  # noqa: S606 - this very program
        return None
    gc.collect()
    _say(output, left_out=failed, ready=digest())
    order = _next_order()
    if order is None:
        return None
    environment = {name: variables[name] for name in _OF_CONTAINER if name in variables}
    order = replace(order, environment=environment | dict(order.environment))
    reason = preloader.why_unfit().encode() or _why_cold(order, variables, preloader.set_variables, at_start)
    if reason:
        os.write(output, reason + b"\n")
        return None
    minder.use_nothing_as_input()
    _restore(output, errors)
    os.write(2, ENTERED)  # as both are read apart from each other
    entered = os.dup(1)
    try:
        become(order, entered, preloader.set_variables)
    except BaseException as error:
        os.write(1, f"it could not become the run ({type(error).__name__}: {error})\n".encode(errors="replace"))
        os._exit(minder.CANNOT_RUN)
    return lambda: run(order)


def _why_cold(
    order: WarmOrder, variables: Mapping[str, str], set_variables: Mapping[str, str], at_start: frozenset[str]
) -> bytes:
    reason = why_not_like_this(order.environment, variables, set_variables) or why_not_threads(order.threads)
    reason = reason or why_not_in(order.imports_from, order.module, at_start)
    return COLD + reason.encode() if reason else b""


def _next_order() -> WarmOrder | None:
    """The order, once all of it is there; None where nobody is there any more who could send one."""
    length = _read(LENGTH_BYTES)
    with contextlib.suppress(ValueError):
        stored = _read(int(length, 16))
        return WarmOrder.from_bytes(stored) if stored else None
    return None


def _read(length: int) -> bytes:
    """So many bytes of standard input; nothing where it ends before."""
    parts = []
    while length:
        part = os.read(0, length)
        if not part:
            return b""
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _write_to(path: str) -> None:
    """Have what this process writes go somewhere else."""
    nowhere = os.open(path, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _restore(output: int, errors: int) -> None:
    """Have what this process writes go where it went at first."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.close(output)
    os.close(errors)


def _say(output: int, **what: object) -> None:
    os.write(output, json.dumps(what).encode() + b"\n")
