"""A process that has imported what runs import first, and that runs are forked from.

A small program of its own, never the agent: what it was started with shows in every fork. It has no secret, no file of
a project, one thread, and one socket, which orders come by. An order is one byte with two descriptors: a file with a
:class:`~tiercel.trainer_agent.runtimes.warm.script.WarmOrder`, which only the fork reads, and a pipe to answer by. It
ends when the agent does, when nothing is ordered for long, and after a number of forks.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tiercel.trainer_agent.runtimes.processes import minder
from tiercel.trainer_agent.runtimes.warm.preloading import (
    Preloader,
    UnfitError,
    why_not_in,
    why_not_like_this,
    why_not_threads,
)
from tiercel.trainer_agent.runtimes.warm.script import (
    COLD,
    WarmOrder,
    become,
    close_all_but,
    enter,
    reset_signals,
    run,
)

START: Final = (
    "import sys; del sys.path[0]; at_start = frozenset(sys.modules); "
    f"from {__name__} import main; script = main(at_start, *sys.argv[1:]); script and script()"
)
"""What Python is asked to do."""

# Descriptors come with one message only.
_DESCRIPTORS: Final = 2
# Together with what it did not bear, which begins it anew.
_PRELOAD_SECONDS: Final = 180
_MOST_BEGINNINGS: Final = 8


def main(
    at_start: frozenset[str], descriptor: str, idle_seconds: str, forks: str, beginning: str = "1"
) -> Callable[[], None] | None:
    """Be a template; what to import comes by standard input. Returns in a fork what is left to do there, else nothing.

    Args:
        at_start: Names of the modules that every interpreter has from its start.
        descriptor: Of the socket.
        idle_seconds: After how long without an order it ends.
        forks: After how many forks it ends.
        beginning: Which try it is to import all that it should.
    """
    if beginning == "1":  # an alarm goes on when a process becomes another program
        signal.alarm(_PRELOAD_SECONDS)
    names = _read_names()
    orders = socket.socket(fileno=int(descriptor))
    variables = dict(os.environ)
    preloader = Preloader()
    try:
        failed = preloader.load(names)
    except UnfitError as error:
        _say(orders, left_out={error.name: error.reason})
        if int(beginning) < _MOST_BEGINNINGS:
            again = [descriptor, idle_seconds, forks, str(int(beginning) + 1)]
            _begin_anew(orders, error.name, names, again, variables)
        return None
    _say(orders, left_out=failed, ready=True)
    signal.alarm(0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody has to bury a minder
    gc.collect()
    gc.freeze()
    for _ in range(int(forks)):
        order = _next_order(orders, float(idle_seconds))
        if order is None:
            return None
        file, said = order
        if reason := preloader.why_unfit():
            os.write(said, reason.encode())
            return None
        if os.fork() == 0:
            os.close(orders.detach())
            return _fork(file, said, at_start, variables, preloader.set_variables)
        os.close(file)
        os.close(said)
    return None


def _read_names() -> list[str]:
    with open(0, "rb", closefd=False) as given:
        names: list[str] = json.loads(given.read())
    minder.use_nothing_as_input()
    return names


def _begin_anew(
    orders: socket.socket, unfit: str, names: list[str], arguments: list[str], variables: dict[str, str]
) -> None:
    """Have another try without a module that cannot be here."""
    kept = [name for name in names if name != unfit and not name.startswith(f"{unfit}.")]
    with os.fdopen(os.memfd_create("names"), "w+b") as file:
        file.write(json.dumps(kept).encode())
        file.seek(0)
        os.dup2(file.fileno(), 0)
    orders.set_inheritable(True)
    os.execve(sys.executable, [sys.executable, "-c", START, *arguments], variables)  # noqa: S606 - this very program


def _next_order(orders: socket.socket, idle_seconds: float) -> tuple[int, int] | None:
    if not select.select([orders], [], [], idle_seconds)[0]:
        return None
    try:
        message, descriptors, _, _ = socket.recv_fds(orders, 1, _DESCRIPTORS)
    except OSError:
        return None
    if not message or len(descriptors) != _DESCRIPTORS:
        return None
    return descriptors[0], descriptors[1]


def _fork(
    file: int, said: int, at_start: frozenset[str], variables: dict[str, str], set_variables: dict[str, str]
) -> Callable[[], None] | None:
    """In a fork: be the minder, or the script, in which it returns what is left to do."""
    try:
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.setsid()
        reset_signals()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # whoever wants the end of the script ends the script
        with os.fdopen(file, "rb") as given:
            order = WarmOrder.from_bytes(given.read())
        reason = why_not_like_this(order.environment, variables, set_variables) or why_not_threads(order.threads)
        if reason := reason or why_not_in(order.imports_from, order.module, at_start):
            os.write(1, COLD + reason.encode())
            os._exit(0)
        entered = os.dup(1)
        close_all_but({0, 1, 2, entered})
        enter(order.minder_entry)
        if not minder.mind(Path(order.folder), of_script=(entered,)):
            os._exit(0)
    except BaseException as error:
        os.write(1, _described(error))
        os._exit(minder.CANNOT_RUN)
    try:
        become(order, entered, set_variables)
    except BaseException as error:
        os.write(entered, _described(error))
        os._exit(minder.CANNOT_RUN)
    return lambda: run(order)


def _described(error: BaseException) -> bytes:
    return f"the fork failed ({type(error).__name__}: {error})".encode(errors="replace")


def _say(orders: socket.socket, **what: object) -> None:
    orders.send(json.dumps(what).encode())
