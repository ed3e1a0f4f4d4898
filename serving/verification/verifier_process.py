"""The process that looks at artefacts nobody trusts yet: ``python -m tiercel.serving.verification.verifier_process``.

It imports what a check needs once, and forks for each artefact: a check begins in milliseconds, and whatever an
artefact does to the process that reads it ends with that process. Several checks may run side by side.

It talks over the socket that is its stdin (``SOCK_SEQPACKET``, one JSON object a message). A request brings the model
along as a descriptor: a sealed file in memory, so that nobody can change it between the check and the load. It leaves
when the socket ends, so it cannot outlive the server.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import resource
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from tiercel.serving.errors import ArtefactRefusedError
from tiercel.serving.models import artefact_file
from tiercel.serving.verification import checks as verification

MAX_MESSAGE_BYTES: Final = 64 * 1024
_NICENESS = 5  # requests come first
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(slots=True)
class _Check:
    """An artefact that is being looked at.

    Attributes:
        key: Names the request.
        child: Process that reads the artefact.
        answers: Where it writes what it found.
        deadline: Seconds of ``time.monotonic`` at which it is given up.
        timeout: Seconds it had in all.
        parts: What it wrote so far.
    """

    key: int
    child: int
    answers: int
    deadline: float
    timeout: float
    parts: list[bytes] = field(default_factory=list)

    def end(self) -> int:
        """End the process if it has not ended by itself; returns its status."""
        os.close(self.answers)
        os.kill(self.child, signal.SIGKILL)  # ended or not: it is still ours to reap
        return os.waitpid(self.child, 0)[1]


class Checks:
    """Runs checks for the server at the other end of ``server``."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._running: dict[int, _Check] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(server, selectors.EVENT_READ)

    def run(self) -> None:
        """Answer until the server is gone."""
        self._say({"ready": True})
        try:
            while self._turn():
                pass
        except ConnectionError:  # it is gone, and so is whoever wanted to know
            pass
        finally:
            for check in self._running.values():
                check.end()

    def _turn(self) -> bool:
        """Wait for something and look after it; False when the server is gone."""
        next_deadline = min((check.deadline for check in self._running.values()), default=None)
        wait = None if next_deadline is None else max(0.0, next_deadline - time.monotonic())
        for ready, _ in self._selector.select(wait):
            if ready.fileobj is self._server:
                if not self._take_request():
                    return False
            elif ready.data in self._running:  # else a request of this turn has broken it off
                self._read(self._running[ready.data])
        now = time.monotonic()
        for check in [each for each in self._running.values() if each.deadline <= now]:
            self._leave(check)
            self._say({"key": check.key, "refused": f"checking it took longer than {check.timeout:g} seconds"})
        return True

    def _take_request(self) -> bool:
        message, descriptors, _, _ = socket.recv_fds(self._server, MAX_MESSAGE_BYTES, 1)
        if not message:
            return False
        request = json.loads(message)
        if "break_off" in request:
            unwanted = self._running.get(int(request["break_off"]))
            if unwanted is not None:
                self._leave(unwanted)
            return True
        try:
            self._begin(request, descriptors[0])
        finally:
            os.close(descriptors[0])
        return True

    def _begin(self, request: dict[str, Any], model: int) -> None:
        read_from, answer_to = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read_from)
            self._selector.close()
            _in_child(request, model, answer_to, self._server)
        os.close(answer_to)
        timeout = float(request["timeout"])
        check = _Check(int(request["key"]), child, read_from, time.monotonic() + timeout, timeout)
        self._running[check.key] = check
        self._selector.register(read_from, selectors.EVENT_READ, check.key)

    def _read(self, check: _Check) -> None:
        part = os.read(check.answers, MAX_MESSAGE_BYTES)
        check.parts.append(part)
        if part and sum(map(len, check.parts)) < MAX_MESSAGE_BYTES:
            return
        status = self._leave(check)
        try:
            answer: dict[str, Any] = json.loads(b"".join(check.parts))
        except ValueError:
            answer = {"refused": f"the process that checked it died{_cause(status)}; the file is damaged or hostile"}
        self._say({**answer, "key": check.key})

    def _leave(self, check: _Check) -> int:
        del self._running[check.key]
        self._selector.unregister(check.answers)
        return check.end()

    def _say(self, answer: dict[str, Any]) -> None:
        self._server.send(json.dumps(answer).encode())


def _limit(request: dict[str, Any]) -> None:
    seconds = int(request["timeout"]) + 5
    for which, amount in (
        (resource.RLIMIT_AS, int(request["memory_bytes"])),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CPU, seconds),
    ):
        _, hard = resource.getrlimit(which)
        amount = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
        resource.setrlimit(which, (amount, amount))
    signal.alarm(seconds)
    os.nice(_NICENESS)


def _check(request: dict[str, Any], model: int) -> dict[str, Any]:
    try:
        _limit(request)
        verdict = verification.verify(
            artefact_file.content_of(model, os.fstat(model).st_size),
            Path(request["reference"]),
            int(request["max_reference_bytes"]),
        )
    except ArtefactRefusedError as error:
        return {"refused": error.message}
    except (MemoryError, RecursionError) as error:
        return {"refused": f"checking it takes more than it may: {type(error).__name__}"}
    except Exception as error:  # whatever an artefact provokes is a reason to refuse it
        return {"refused": f"the check failed: {type(error).__name__}: {error}"[:500]}
    return dataclasses.asdict(verdict)


def _in_child(request: dict[str, Any], model: int, answer_to: int, server: socket.socket) -> NoReturn:
    status = 1
    try:
        server.close()  # only the parent talks to the server
        with contextlib.suppress(AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # and nobody is left over when it dies
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silence, descriptor)
        os.write(answer_to, json.dumps(_check(request, model)).encode())
        status = 0
    finally:
        os._exit(status)


def _cause(status: int) -> str:
    return f" of signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else ""


def main() -> None:
    """Check artefacts until the server is gone."""
    with socket.socket(fileno=os.dup(0)) as server:
        Checks(server).run()


if __name__ == "__main__":
    main()
    sys.exit(0)
