"""The parent of a program's ranks: starts as many processes of it as there are, and ends as the first one that fails.

Each finds in its environment what ``torchrun`` would have told it, so that a script for one works under the other.
Unlike it this imports no PyTorch (1.5 CPU seconds and 200 MB), leaves the ranks in its own process group, where
whoever ends the run reaches them, and ends with the exit code or the signal of the rank that failed: ``retries`` go by
that. Ranks that failed are not started again here.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

BY_GROUP: Final = "by-group"
"""A signal to end reaches every rank without us."""
PASSED_ON: Final = "passed-on"
"""A signal to end comes to us alone, and we pass it on."""

_HOST: Final = "127.0.0.1"
_CANNOT_RUN: Final = 127
_END_WITH_PARENT: Final = 1  # linux/prctl.h, PR_SET_PDEATHSIG; Python has no call for it


def command_of(ranks: int, how: str, python: str, command: Sequence[str]) -> list[str]:
    """The command that starts another one as several ranks.

    Args:
        ranks: How many.
        how: How they hear of a signal to end: :data:`BY_GROUP` or :data:`PASSED_ON`.
        python: The interpreter's command.
        command: Of each rank.
    """
    # -P: nothing of the working directory is imported.
    return [python, "-P", "-m", __name__, str(ranks), how, *command]


def main(arguments: list[str]) -> int:
    """Run a command as ranks: ``NUMBER HOW COMMAND...``; returns the exit code where no signal has ended one."""
    number, how, *command = arguments
    with _reserved_port() as reserved:
        ranks = Ranks(command, int(number), reserved.getsockname()[1], passes_on=how == PASSED_ON)
        code = ranks.run()
    if code < 0:
        _end_by(-code)
    return code


class Ranks:
    """The processes of one program.

    Args:
        command: Of each of them.
        number: How many.
        port: Where the first of them is to be found by the others.
        passes_on: Whether a signal to end is passed on to them.
    """

    def __init__(self, command: Sequence[str], number: int, port: int, *, passes_on: bool) -> None:
        self._command, self._number, self._port, self._passes_on = command, number, port, passes_on
        self._living: dict[int, int] = {}  # process to rank
        self._code, self._why = 0, ""
        self._is_stopping = False

    def run(self) -> int:
        """Start them and wait for their end: the exit code of the one that failed first, -N for signal N, or 0."""
        signal.signal(signal.SIGTERM, self._stop)
        for rank in range(self._number):
            if not self._is_stopping:
                self._start(rank)
        while self._living:
            pid, status = os.wait()
            if pid in self._living:
                self._note_end(self._living.pop(pid), pid, os.waitstatus_to_exitcode(status))
        if self._why:  # last, where whoever looks for it looks first
            sys.stderr.write(f"[tiercel: {self._why}]\n")
            sys.stderr.flush()
        return self._code

    def _start(self, rank: int) -> None:
        try:
            process = subprocess.Popen(
                self._command,
                env=os.environ | self._environment(rank),
                preexec_fn=functools.partial(_end_with, os.getpid()),
            )
        except OSError as error:
            self._fail(f"rank {rank} cannot be started: {error}", _CANNOT_RUN)
        else:
            self._living[process.pid] = rank
            process.returncode = 0  # it is waited for here, and not by the object

    def _environment(self, rank: int) -> dict[str, str]:
        own, all_of_them = str(rank), str(self._number)
        return {
            # One machine: what they say to one another stays on it.
            "GLOO_SOCKET_IFNAME": "lo",
            "NCCL_SOCKET_IFNAME": "lo",
            **{name: os.environ[name] for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME") if name in os.environ},
            "MASTER_ADDR": _HOST,
            "MASTER_PORT": str(self._port),
            "RANK": own,
            "LOCAL_RANK": own,
            "ROLE_RANK": own,
            "GROUP_RANK": "0",
            "WORLD_SIZE": all_of_them,
            "LOCAL_WORLD_SIZE": all_of_them,
            "ROLE_WORLD_SIZE": all_of_them,
            "GROUP_WORLD_SIZE": "1",
            "ROLE_NAME": "default",
            "TORCHELASTIC_RUN_ID": "tiercel",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
        }

    def _note_end(self, rank: int, pid: int, code: int) -> None:
        if code and not self._code:
            how = f"was ended by {_name_of(-code)}" if code < 0 else f"ended with exit code {code}"
            self._fail(f"rank {rank} (process {pid}) {how}", code)

    def _fail(self, why: str, code: int) -> None:
        """End the ranks that are left, unless all are being stopped: somebody else then bounds their time."""
        self._code = code
        if not self._is_stopping:
            self._is_stopping = True
            self._why = f"{why}, and the others were ended" if self._living else why
            self._signal(signal.SIGKILL)  # at once: all that they could say is that they miss the one that failed

    def _stop(self, *_: object) -> None:
        self._is_stopping = True
        if self._passes_on:
            self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _end_with(parent: int) -> None:
    """Have the kernel end this process as soon as its parent has ended, however that came about."""
    ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_CANNOT_RUN)


def _reserved_port() -> socket.socket:
    """A port that nobody else is given while the socket is open, and that a rank may listen on all the same."""
    # The kernel lets a second socket have it if both allow that and nobody listens yet, but gives it to nobody who asks
    # for any.
    reserved = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((_HOST, 0))
    return reserved


def _end_by(number: int) -> None:
    """End as the rank did, so that whoever waits for us learns of it; without a file of our own memory."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):  # the kernel does not let SIGKILL be changed, nor need it be
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
