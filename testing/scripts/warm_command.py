"""A Python script that begins warm, for shells: a fork of the template in ``testing/warm_python.py`` is what it does.

Usage: ``python -S warm_command.py SCRIPT ARGUMENTS``, with the template's door in ``WARM_PYTHON``. The fork reads and
prints where this process would; signals are handed on to it, and this process ends as it does. ``tiercel up``, which
is to be known by its name, and all where there is no template, run as they are.
"""

import contextlib
import json
import os
import signal
import socket
import sys
from pathlib import Path

HANDED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
STREAMS = (0, 1, 2)
NUMBER_BYTES = 4


def told(status: socket.socket) -> int:
    """A number that the template says, once it does."""
    number = status.recv(NUMBER_BYTES)
    assert len(number) == NUMBER_BYTES, "the template has ended"
    return int.from_bytes(number, "little")


def main(arguments: list[str]) -> int:
    """See above; the exit status of a script that no signal ended."""
    door = int(os.environ.pop("WARM_PYTHON", -1))
    if door >= 0:
        os.set_inheritable(door, False)
    if door < 0 or (Path(arguments[0]).name, arguments[1:2]) == ("tiercel", ["up"]):
        os.execv(sys.executable, [sys.executable, *arguments])
    # From here on until there is somebody to hand them on to.
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDED_ON)
    status, status_there = socket.socketpair()
    request = {"arguments": arguments, "environment": dict(os.environ), "folder": str(Path.cwd())}
    with socket.socket(fileno=door) as template, status_there:
        socket.send_fds(template, [json.dumps(request).encode()], [status_there.fileno(), *STREAMS])
    pid = told(status)

    def hand_on(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    for number in HANDED_ON:
        signal.signal(number, hand_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDED_ON)
    code = os.waitstatus_to_exitcode(told(status))
    if code < 0:
        if -code in HANDED_ON:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


sys.exit(main(sys.argv[1:]))
