"""The process that looks at artefacts nobody trusts yet: ``python -m tiercel.serving.verification.verifier_process``.

It imports what a check needs once, and a process is forked for each artefact, see :mod:`.reader`: a check begins in
milliseconds, and whatever an artefact does to the process that reads it ends with that process. Several checks may run
side by side.

It talks over the socket that is its stdin (``SOCK_SEQPACKET``, one JSON object a message). A request brings the model
along as a descriptor: a sealed file in memory, so that nobody can change it between the check and the load. It leaves
when the socket ends, so it cannot outlive the server.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tiercel.serving.verification import checks, reader
from tiercel.serving.verification.forkserver import Begun, Forkserver
from tiercel.serving.verification.verdict import MAX_MESSAGE_BYTES

# Requests come first: a check takes CPU that nobody wants, so that neither the server nor its callers lose a slice of
# the scheduler (3 to 4 ms) to it. One that gets hardly any, since training keeps all cores busy, begins anew with a
# claim to some: a process may not take back what it gave up.
_NICENESS = 5
_LOOK_SECONDS = 0.2
_LEAST_CORES = 0.1
_REAP_SECONDS = 0.05
# A process may not be allowed to give way, or not to name another one.
_TRIES = 3


@dataclass(slots=True)
class _Check:
    """An artefact that is being looked at; times in seconds of ``time.monotonic``."""

    key: int  # names the request
    number: int  # of this attempt
    answers: int  # where its reader writes what it found
    deadline: float
    timeout: float  # seconds it had in all
    request: dict[str, Any]
    model: int  # the artefact, open
    begun: float
    look_at: float  # when to see whether it gets on; never for one with a claim to CPU
    child: int = 0  # the reader with a claim to CPU, which this process forked itself
    background: Begun | None = None  # the reader with none, once it has begun
    parts: list[bytes] = field(default_factory=list)  # what it wrote so far

    def gets_on(self, now: float) -> bool:
        """Whether a reader in the background gets a little CPU."""
        return self.background is not None and cpu_seconds(self.background.pid) >= _LEAST_CORES * (now - self.begun)

    def end(self) -> None:
        """End its reader if it has not ended by itself; a child has to be reaped."""
        os.close(self.answers)
        os.close(self.model)
        if self.child:
            os.kill(self.child, signal.SIGKILL)
        if self.background is not None:
            self.background.kill()


class Checks:
    """Runs checks for the server at the other end of ``server``."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._running: dict[int, _Check] = {}
        self._unreaped: list[int] = []  # children on their way out, which takes long where they get no CPU
        self._selector = selectors.DefaultSelector()
        self._selector.register(server, selectors.EVENT_READ)
        self._numbers = itertools.count(1)
        self._forkserver: Forkserver | None = None
        self._tries = _TRIES
        self._have_forkserver()

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
                if check.child:
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
            elif ready.data is None:
                self._hear_who_began()
            elif ready.data in self._running:  # else a request of this turn has broken it off
                self._read(self._running[ready.data])
        self._unreaped = [child for child in self._unreaped if os.waitpid(child, os.WNOHANG) == (0, 0)]
        now = time.monotonic()
        for check in [each for each in self._running.values() if each.deadline <= now]:
            self._abandon(check)
            self._say({"key": check.key, "refused": f"checking it took longer than {check.timeout:g} seconds"})
        for check in [each for each in self._running.values() if each.look_at <= now]:
            if check.gets_on(now):
                check.look_at = now + _LOOK_SECONDS
            else:
                self._begin_anew(check)
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
        now, timeout, number = time.monotonic(), float(request["timeout"]), next(self._numbers)
        in_background = deadline is None and self._have_forkserver()
        read_from, answer_to = os.pipe()
        child = 0
        if not (in_background and self._order(number, request, model, answer_to)):
            in_background, child = False, self._fork(request, model, answer_to)
        os.close(answer_to)
        look_at = now + _LOOK_SECONDS if in_background else math.inf
        deadline = now + timeout if deadline is None else deadline
        key = int(request["key"])
        check = _Check(key, number, read_from, deadline, timeout, request, os.dup(model), now, look_at, child)
        self._running[check.key] = check
        self._selector.register(read_from, selectors.EVENT_READ, check.key)

    def _order(self, number: int, request: dict[str, Any], model: int, answer_to: int) -> bool:
        return self._forkserver is not None and self._forkserver.order(number, request, model, answer_to)

    def _fork(self, request: dict[str, Any], model: int, answer_to: int) -> int:
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            os.nice(_NICENESS)
            reader.read_and_end(request, model, answer_to, parent=parent)
        return child

    def _have_forkserver(self) -> bool:
        """Whether somebody forks readers that give way; renewed where it ended, unless none ever does anything."""
        if self._forkserver is None and self._tries > 0:
            self._tries -= 1
            self._forkserver = Forkserver()
            self._selector.register(self._forkserver.socket, selectors.EVENT_READ)
        return self._forkserver is not None

    def _hear_who_began(self) -> None:
        forks = self._forkserver
        if forks is None:
            return
        begun = forks.begun()
        if begun is None:  # it is gone, and what it had begun with it
            self._selector.unregister(forks.socket)
            forks.close()
            self._unreaped.append(forks.pid)
            self._forkserver = None
            return
        self._tries = _TRIES
        for check in self._running.values():
            if check.number == begun.order:
                check.background = begun
                return
        begun.kill()  # nobody waits for it any more

    def _read(self, check: _Check) -> None:
        part = os.read(check.answers, MAX_MESSAGE_BYTES)
        check.parts.append(part)
        if part and sum(map(len, check.parts)) < MAX_MESSAGE_BYTES:
            return
        answer = _answer_of(check.parts)
        if answer is None and not check.child:
            self._begin_anew(check)  # what a child dies of is known
            return
        self._leave(check)
        status = os.waitpid(check.child, 0)[1] if check.child else 0
        if answer is None:
            answer = {"refused": f"the process that checked it died{_cause(status)}; the file is damaged or hostile"}
        self._say({**answer, "key": check.key})

    def _abandon(self, check: _Check) -> None:
        self._leave(check)
        if check.child:
            self._unreaped.append(check.child)

    def _leave(self, check: _Check) -> None:
        del self._running[check.key]
        self._selector.unregister(check.answers)
        check.end()

    def _say(self, answer: dict[str, Any]) -> None:
        self._server.send(json.dumps(answer).encode())


def cpu_seconds(process: int) -> float:
    """CPU time that the first thread of a process has had; endless where the kernel does not say."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return math.inf


def _answer_of(parts: list[bytes]) -> dict[str, Any] | None:
    """What a reader wrote; None where it died before, or wrote something else."""
    try:
        answer = json.loads(b"".join(parts))
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _cause(status: int) -> str:
    return f" of signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else ""


def main() -> None:
    """Check artefacts until the server is gone."""
    checks.rehearse()
    with socket.socket(fileno=os.dup(0)) as server:
        Checks(server).run()


if __name__ == "__main__":
    main()
    sys.exit(0)
