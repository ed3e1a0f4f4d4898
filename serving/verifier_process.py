"""The process that looks at artefacts nobody trusts yet: ``python -m tiercel.serving.verifier_process``.

It imports what a check needs once, and forks for each artefact: a check begins in milliseconds, and whatever an
artefact does to the process that reads it ends with that process. Requests and answers are lines of JSON on stdin and
stdout. It leaves when stdin ends, so it cannot outlive the server.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from tiercel.serving import verification
from tiercel.serving.errors import ArtefactRefusedError

_MAX_ANSWER_BYTES = 1024**2
_NICENESS = 5  # requests come first
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class _ServerGoneError(Exception):
    """Stdin ended while an artefact was being checked."""


def _lines() -> Iterator[bytes]:
    waiting = b""
    while True:
        while b"\n" in waiting:
            line, waiting = waiting.split(b"\n", 1)
            yield line
        more = os.read(0, 65536)
        if not more:
            return
        waiting += more


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


def _check(request: dict[str, Any]) -> dict[str, Any]:
    try:
        _limit(request)
        verdict = verification.verify(
            Path(request["path"]),
            Path(request["reference"]),
            int(request["max_model_bytes"]),
            int(request["max_reference_bytes"]),
        )
    except ArtefactRefusedError as error:
        return {"refused": error.message}
    except (MemoryError, RecursionError) as error:
        return {"refused": f"checking it takes more than it may: {type(error).__name__}"}
    except Exception as error:  # whatever an artefact provokes is a reason to refuse it
        return {"refused": f"the check failed: {type(error).__name__}: {error}"[:500]}
    return dataclasses.asdict(verdict)


def _in_child(request: dict[str, Any], answer_to: int, server: int) -> NoReturn:
    status = 1
    try:
        os.close(server)  # only the parent talks to the server
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # and nobody is left over when it dies
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silence, descriptor)
        os.write(answer_to, json.dumps(_check(request)).encode())
        status = 0
    finally:
        os._exit(status)


def _answer(read_from: int, deadline: float) -> bytes | None:
    """What the child wrote until it ended; None when the time was up."""
    parts: list[bytes] = []
    while sum(map(len, parts)) < _MAX_ANSWER_BYTES:
        readable, _, _ = select.select([read_from, 0], [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            return None
        if read_from not in readable:  # one request at a time: on stdin there is nothing but its end
            raise _ServerGoneError
        part = os.read(read_from, 65536)
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def _judge(request: dict[str, Any], server: int) -> dict[str, Any]:
    read_from, answer_to = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_from)
        _in_child(request, answer_to, server)
    os.close(answer_to)
    answer: bytes | None = None
    try:
        answer = _answer(read_from, time.monotonic() + float(request["timeout"]))
    finally:
        os.close(read_from)
        os.kill(child, signal.SIGKILL)  # ended or not: it is still ours to reap
        _, status = os.waitpid(child, 0)
    if answer is None:
        return {"refused": f"checking it took longer than {request['timeout']:g} seconds"}
    try:
        judged: dict[str, Any] = json.loads(answer)
    except ValueError:
        return {"refused": f"the process that checked it died{_cause(status)}; the file is damaged or hostile"}
    return judged


def _cause(status: int) -> str:
    return f" of signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else ""


def main() -> None:
    """Answer requests until stdin ends."""
    answers = os.dup(1)
    os.dup2(2, 1)  # a library that prints must not talk into the answers
    os.write(answers, b"{}\n")
    for line in _lines():
        try:
            answer = _judge(json.loads(line), answers)
        except _ServerGoneError:
            return
        os.write(answers, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
    sys.exit(0)
