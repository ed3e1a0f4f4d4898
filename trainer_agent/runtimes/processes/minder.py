"""The parent of a script: it outlives the agent, so that the script's output and its exit code do.

A process of its own, started by :mod:`tiercel.trainer_agent.runtimes.processes.minding`, with a folder of its own:

    processes   who it is, who the script is; there before the script runs anything
    output-N    output from its byte N on; whoever reads it removes what is read
    grew        a pipe that gets a byte whenever there is more output, and is closed at the end
    exit        the script's exit code, -N for signal N; there once it has ended

The environment of the script comes by standard input: some of it may be secret, and some may change how
Python itself starts, so that the script alone gets it. Imports as little as it can: there is one for each run.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tiercel.trainer_agent.runtimes.processes.identity import ProcessIdentity, identity_of

PROCESSES: Final = "processes"
OUTPUT: Final = "output-"
GREW: Final = "grew"
EXIT: Final = "exit"
STARTED: Final = b"started\n"

SEGMENT_BYTES: Final = 1 << 20
MOST_SEGMENTS: Final = 16
# A reader that lives makes room in no time. One that is away for longer loses output rather than hold up the script.
PATIENCE_SECONDS: Final = 5.0
_ROOM_POLL_SECONDS: Final = 0.02
_READ_BYTES: Final = 1 << 16
_MOST_LAST_READS: Final = 16  # as much as the largest pipe holds
_EXIT_FORM: Final = "%-15s\n"
_NOTICE: Final = b"\n[tiercel: %d bytes of output found no room while nobody took it, and are lost]\n"
CANNOT_RUN: Final = 127


class Spool:
    """Output on disk, until somebody has read it; never more than so many segments.

    Args:
        folder: Where.
        patience_seconds: How long to wait for room before output is dropped.
    """

    def __init__(self, folder: Path, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._folder = folder
        self._patience = patience_seconds
        self._offset = 0
        self._room = 0
        self._descriptor = -1
        self._dropped = 0

    def append(self, data: bytes) -> None:
        """Keep some output; what finds no room is counted, and said as soon as there is some."""
        if self._dropped:
            if not self._make_room(0.0):
                self._dropped += len(data)
                return
            data, self._dropped = _NOTICE % self._dropped + data, 0
        view = memoryview(data)
        while view:
            if not self._make_room(self._patience):
                self._dropped += len(view)
                return
            try:
                written = os.write(self._descriptor, view[: self._room])
            except OSError:  # the disk is full
                self._dropped += len(view)
                return
            self._offset += written
            self._room -= written
            view = view[written:]

    def close(self) -> None:
        """Say what was lost at the end, if it finds room."""
        if self._dropped:
            self.append(b"")

    def _make_room(self, patience_seconds: float) -> bool:
        """Begin another segment where the last one is full; whether there is room now."""
        if self._room > 0:
            return True
        give_up_at = time.monotonic() + patience_seconds
        while sum(name.startswith(OUTPUT) for name in os.listdir(self._folder)) >= MOST_SEGMENTS:  # noqa: PTH208
            if time.monotonic() >= give_up_at:
                return False
            time.sleep(_ROOM_POLL_SECONDS)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        try:
            self._descriptor = os.open(self._folder / f"{OUTPUT}{self._offset}", flags, 0o600)
        except OSError:
            return False
        self._room = SEGMENT_BYTES
        return True


def main(arguments: list[str]) -> int:
    """Run a command in a folder, and see it through: ``FOLDER WORKING_DIRECTORY COMMAND...``."""
    folder, working_directory, *command = arguments
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # whoever wants the end of the script ends the script
    environment = unpack_environment(sys.stdin.buffer.read())
    use_nothing_as_input()
    if mind(Path(folder)):
        _become(command, environment, working_directory)
    return 0


def pack_environment(environment: Mapping[str, str]) -> bytes:
    """An environment as one string of bytes, as the kernel has it."""
    return b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())


def unpack_environment(packed: bytes) -> dict[bytes, bytes]:
    """The inverse of :func:`pack_environment`."""
    pairs = (entry.partition(b"=") for entry in packed.split(b"\0") if entry)
    return {name: value for name, _, value in pairs}


def mind(folder: Path, of_script: Sequence[int] = ()) -> bool:
    """Fork, and keep the output and the exit code of the new process, which is to become the script.

    Returns:
        Whether this is the new process, which begins once it is written down who it is; in the old one when both are
        kept.
    """
    exit_code = os.open(folder / EXIT, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.write(exit_code, (_EXIT_FORM % "").encode())  # room on the disk for what must not be lost
    os.mkfifo(folder / GREW, 0o600)
    # For reading too, so that it neither waits for a reader nor dies of there being none.
    grew = os.open(folder / GREW, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    reader, writer = os.pipe2(os.O_CLOEXEC)
    gate, opener = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _begin(writer, gate, opener)
        return True
    for descriptor in (writer, gate, *of_script):
        os.close(descriptor)
    _write_processes(folder, identity_of(os.getpid()), identity_of(pid))
    os.write(opener, b"!")
    os.close(opener)
    os.write(1, STARTED)
    _let_go_of_starter()
    os.pwrite(exit_code, (_EXIT_FORM % _wait_end(Spool(folder), pid, reader, grew)).encode(), 0)
    return False


def _begin(writer: int, gate: int, opener: int) -> None:
    """In the child: a session of its own, its output where it is kept, and nothing more until it is told to go on."""
    try:
        os.close(opener)
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        told = os.read(gate, 1)
    except OSError:
        told = b""
    if not told:
        os._exit(CANNOT_RUN)


def _become(command: list[str], environment: Mapping[bytes, bytes], working_directory: str) -> None:
    """Turn into the script; never returns."""
    try:
        os.chdir(working_directory)
        os.execve(command[0], command, environment)  # noqa: S606 - the agent's own choice of a command
    except OSError as error:
        os.write(2, f"The program cannot be run: {error}.\n".encode())
    finally:
        os._exit(CANNOT_RUN)


def use_nothing_as_input() -> None:
    """Have standard input at its end already."""
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)


def _write_processes(folder: Path, *processes: ProcessIdentity | None) -> None:
    """Say who is who. It fails where the folder was taken away, which is how a start is called off."""
    known = [[each.boot_id, each.pid, each.start_ticks] for each in processes if each is not None]
    temporary = folder / f"{PROCESSES}.new"
    temporary.write_text(json.dumps(known))
    temporary.rename(folder / PROCESSES)


def read_processes(folder: Path) -> tuple[ProcessIdentity, ProcessIdentity] | None:
    """The minder of a folder and its script; None where they are not known yet, or not any more."""
    try:
        minding, script = json.loads((folder / PROCESSES).read_bytes())
        return ProcessIdentity(*minding), ProcessIdentity(*script)
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _let_go_of_starter() -> None:
    """Hold nothing of the agent that might keep something of it alive."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _wait_end(spool: Spool, pid: int, reader: int, grew: int) -> int:
    """Keep the output until the script has ended; returns its exit code."""
    ended = os.pidfd_open(pid)
    waiter = select.poll()
    for descriptor in (reader, ended):
        waiter.register(descriptor, select.POLLIN)
    os.set_blocking(reader, False)
    while ended not in [descriptor for descriptor, _ in waiter.poll()]:
        if not _take(spool, reader, grew):
            waiter.unregister(reader)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # what it left behind goes with it
    for _ in range(_MOST_LAST_READS):
        if not _take(spool, reader, grew):
            break
    spool.close()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _take(spool: Spool, reader: int, grew: int) -> bool:
    """Keep what there is in the pipe, and say so; whether there may be more."""
    try:
        data = os.read(reader, _READ_BYTES)
    except BlockingIOError:
        return False
    spool.append(data)
    with contextlib.suppress(BlockingIOError):  # many bytes say no more than one
        os.write(grew, b"!")
    return bool(data)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
