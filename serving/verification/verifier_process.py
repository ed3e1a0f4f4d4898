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
import math
import os
import resource
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from tiercel.serving.errors import ArtefactRefusedError
from tiercel.serving.models import artefact_file
from tiercel.serving.verification import checks as verification
from tiercel.serving.verification.verdict import MAX_MESSAGE_BYTES

# Requests come first: a check takes CPU that nobody wants, so that neither the server nor its callers lose a slice of
# the scheduler (3 to 4 ms) to it. One that gets hardly any, since training keeps all cores busy, begins anew with a
# claim to some: a process may not take back what it gave up.
_NICENESS = 5
_LOOK_SECONDS = 0.2
_LEAST_CORES = 0.1
_REAP_SECONDS = 0.05
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
        request: What was asked.
        model: The artefact, open.
        begun: Seconds of ``time.monotonic`` when the process began.
        look_at: Seconds of ``time.monotonic`` at which to see whether it gets on; never for one with a claim to CPU.
        parts: What it wrote so far.
    """

    key: int
    child: int
    answers: int
    deadline: float
    timeout: float
    request: dict[str, Any]
    model: int
    begun: float
    look_at: float
    parts: list[bytes] = field(default_factory=list)

    def end(self) -> None:
        """End the process if it has not ended by itself; it has to be reaped."""
        os.close(self.answers)
        os.close(self.model)
        os.kill(self.child, signal.SIGKILL)


class Checks:
    """Runs checks for the server at the other end of ``server``."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._running: dict[int, _Check] = {}
        self._unreaped: list[int] = []  # on their way out, which takes long where they get no CPU
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
                os.waitpid(check.child, 0)

    def _turn(self) -> bool:
        """Wait for something and look after it; False when the server is gone."""
        next_look = min((min(check.deadline, check.look_at) for check in self._running.values()), default=None)
        wait = None if next_look is None else max(0.0, next_look - time.monotonic())
        if self._unreaped:
            wait = _REAP_SECONDS if wait is None else min(wait, _REAP_SECONDS)
        for ready, _ in self._selector.select(wait):
            if ready.fileobj is self._server:
                if not self._take_request():
                    return False
            elif ready.data in self._running:  # else a request of this turn has broken it off
                self._read(self._running[ready.data])
        self._unreaped = [child for child in self._unreaped if os.waitpid(child, os.WNOHANG) == (0, 0)]
        now = time.monotonic()
        for check in [each for each in self._running.values() if each.deadline <= now]:
            self._abandon(check)
            self._say({"key": check.key, "refused": f"checking it took longer than {check.timeout:g} seconds"})
        for check in [each for each in self._running.values() if each.look_at <= now]:
            if cpu_seconds(check.child) < _LEAST_CORES * (now - check.begun):
                self._begin_anew(check)
            else:
                check.look_at = now + _LOOK_SECONDS
        return True

    def _take_request(self) -> bool:
        message, descriptors, _, _ = socket.recv_fds(self._server, MAX_MESSAGE_BYTES, 1)
        if not message:
            return False
        request = json.loads(message)
        if "break_off" in request:
            unwanted = self._running.get(int(request["break_off"]))
            if unwanted is not None:
                self._abandon(unwanted)
            return True
        try:
            self._begin(request, descriptors[0])
        finally:
            os.close(descriptors[0])
        return True

    def _begin_anew(self, check: _Check) -> None:
        """Check it in a process that has a claim to CPU, in the time that is left."""
        model = os.dup(check.model)
        try:
            self._abandon(check)
            self._begin(check.request, model, check.deadline)
        finally:
            os.close(model)

    def _begin(self, request: dict[str, Any], model: int, deadline: float | None = None) -> None:
        """Check it; what has a deadline already has a claim to CPU, too."""
        read_from, answer_to = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read_from)
            self._selector.close()
            _in_child(request, model, answer_to, self._server, modest=deadline is None)
        os.close(answer_to)
        now, timeout = time.monotonic(), float(request["timeout"])
        look_at = now + _LOOK_SECONDS if deadline is None else math.inf
        deadline = now + timeout if deadline is None else deadline
        key = int(request["key"])
        check = _Check(key, child, read_from, deadline, timeout, request, os.dup(model), now, look_at)
        self._running[check.key] = check
        self._selector.register(read_from, selectors.EVENT_READ, check.key)

    def _read(self, check: _Check) -> None:
        part = os.read(check.answers, MAX_MESSAGE_BYTES)
        check.parts.append(part)
        if part and sum(map(len, check.parts)) < MAX_MESSAGE_BYTES:
            return
        self._leave(check)
        status = os.waitpid(check.child, 0)[1]
        try:
            answer: dict[str, Any] = json.loads(b"".join(check.parts))
        except ValueError:
            answer = {"refused": f"the process that checked it died{_cause(status)}; the file is damaged or hostile"}
        self._say({**answer, "key": check.key})

    def _abandon(self, check: _Check) -> None:
        self._leave(check)
        self._unreaped.append(check.child)

    def _leave(self, check: _Check) -> None:
        del self._running[check.key]
        self._selector.unregister(check.answers)
        check.end()

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


def _give_way(modest: bool) -> None:
    """Leave CPU to requests: all that anybody wants, or else most of it."""
    if modest:
        with contextlib.suppress(OSError, AttributeError):  # no such thing, or not allowed here
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            return
    os.nice(_NICENESS)


def cpu_seconds(process: int) -> float:
    """CPU time that the first thread of a process has had; endless where the kernel does not say."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return math.inf


def _in_child(request: dict[str, Any], model: int, answer_to: int, server: socket.socket, *, modest: bool) -> NoReturn:
    status = 1
    try:
        _give_way(modest)
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
