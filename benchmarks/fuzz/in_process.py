"""The real server in this process, every part of it, asked without sockets: a million requests in minutes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import os
import random
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import uvloop
from onnx import TensorProto

from benchmarks.fuzz.answers import MalformedAnswerError, grpc_statuses, http_statuses
from benchmarks.fuzz.calls import grpc_case
from benchmarks.fuzz.mutation import Case
from benchmarks.fuzz.requests import OK, rest_case
from testing import onnx_models
from tiercel.serving.main import main
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.rest.messages import ByteBudget

BATCH = 64
READY_SECONDS = 60.0
ANSWER_SECONDS = 5.0
LOOKS = 500
_GREETING = 64
"""Octets of HTTP/2 settings and the like that come before any answer, at least."""
Make = Callable[[random.Random], Case]
PROTOCOLS: dict[str, Make] = {"rest": rest_case, "grpc": grpc_case}


class CapturingLoop(uvloop.Loop):
    """An event loop that remembers what makes the protocol of each connection, first HTTP's, then gRPC's."""

    def __init__(self) -> None:
        super().__init__()
        self.factories: list[Callable[[], asyncio.Protocol]] = []

    async def create_server(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        """asyncio: listen."""
        self.factories.append(protocol_factory)
        return await super().create_server(protocol_factory, *args, **options)


class MemoryTransport(asyncio.Transport):
    """A connection whose other end is a list of what was written."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self._loop = loop
        self.protocol: asyncio.Protocol | None = None
        self.written = bytearray()
        self.closed = False

    def write(self, data: Any) -> None:
        """asyncio: octets to the peer."""
        self.written += data

    def writelines(self, data: Any) -> None:
        """asyncio: octets to the peer."""
        self.written += b"".join(data)

    def take(self) -> bytes:
        """What was written since the last time."""
        written, self.written = bytes(self.written), bytearray()
        return written

    def close(self) -> None:
        """asyncio: no more of it."""
        if not self.closed:
            self.closed = True
            if self.protocol is not None:
                self._loop.call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        """asyncio: no more of it, at once."""
        self.close()

    def is_closing(self) -> bool:
        """asyncio: whether it is over."""
        return self.closed

    def pause_reading(self) -> None:
        """asyncio: nothing more is fed anyway."""

    def resume_reading(self) -> None:
        """asyncio: nothing more is fed anyway."""

    def write_eof(self) -> None:
        """asyncio: the server has said everything."""

    def can_write_eof(self) -> bool:
        """asyncio: yes."""
        return True

    def get_write_buffer_size(self) -> int:
        """asyncio: the peer takes everything at once."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """asyncio: never reached."""


@dataclass(slots=True)
class Findings:
    """What went wrong."""

    # By what it looks like: the octets that did it first, and how often.
    cases: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    requests: int = 0  # how many were sent
    seconds: float = 0.0  # in so long
    cpu_seconds: float = 0.0  # CPU time of this process for that, server and fuzzer together

    def add(self, what: str, wire: bytes) -> None:
        """Something went wrong."""
        first, count = self.cases.get(what[:160], (wire, 0))
        self.cases[what[:160]] = first, count + 1


class Log(logging.Handler):
    """Keeps errors, which no request may bring about."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """logging: a record."""
        error = record.exc_info[1] if record.exc_info else None
        self.errors.append(f"log: {record.getMessage()[:80]} {error!r}")


def fuzz(make: Make, protocol: str, count: int, seed: int, folder: Path, seconds: float | None = None) -> Findings:
    """Send mutated requests to the server.

    Args:
        make: Gives one after the other.
        protocol: ``rest`` or ``grpc``.
        count: How many.
        seed: The same seed sends the same requests.
        folder: For the models.
        seconds: Stop after so long, even if fewer were sent.
    """
    for name, content in {
        "plus": onnx_models.plus(1.0),
        "two": onnx_models.two_in_two_out(),
        "text": onnx_models.identity(TensorProto.STRING),
    }.items():
        onnx_models.put(folder / "models", name, 1, content)
    run = _Run(protocol, count, seed, math.inf if seconds is None else seconds, make)
    found: list[Findings] = []

    def run_beside(serving: Coroutine[Any, Any, None]) -> None:
        """What runs the server in place of uvloop's own function: the same, with the fuzzer beside it."""
        loop = CapturingLoop()
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            found.append(runner.run(_fuzz(serving, loop, log, run)))

    flags = {"repository": folder / "models", "state-file": folder / "state", "lock-file": folder / "lock"}
    arguments = [part for name, path in flags.items() for part in (f"--{name}", str(path))]
    with _errors_kept() as log, patch.object(uvloop, "run", run_beside):
        code = main([*arguments, "--http-port", "0", "--grpc-port", "0"])
    if code or not found:
        raise RuntimeError(f"the server ended with {code}")
    return found[0]


@dataclass(frozen=True, slots=True)
class _Run:
    protocol: str
    count: int
    seed: int
    seconds: float
    make: Make


async def _fuzz(server: Coroutine[Any, Any, None], loop: CapturingLoop, log: Log, run: _Run) -> Findings:
    loop.set_exception_handler(lambda _, context: log.errors.append(f"loop: {context.get('exception')!r}"))
    serving = asyncio.create_task(server)
    try:
        return await _Fuzzer(loop, log, run).run()
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await serving


class _Fuzzer:
    def __init__(self, loop: CapturingLoop, log: Log, run: _Run) -> None:
        self._loop = loop
        self._log = log
        self._wanted = run
        self._source = random.Random(run.seed)
        self._found = Findings()
        self._budgets: list[ByteBudget] = []
        self._versions: list[LoadedVersion] = []

    async def run(self) -> Findings:
        """Wait for the server, then send everything."""
        wanted, found = self._wanted, self._found
        factory = await self._ready()
        make = wanted.make
        began = time.perf_counter()
        used = time.process_time()
        while found.requests < wanted.count and time.perf_counter() - began < wanted.seconds:
            cases = [make(self._source) for _ in range(min(BATCH, wanted.count - found.requests))]
            await self._batch(cases, factory)
            found.requests += len(cases)
            if found.requests % (BATCH * 256) == 0:
                await self._check_leaks()
        found.seconds = time.perf_counter() - began
        found.cpu_seconds = time.process_time() - used
        await self._check_leaks()
        return found

    async def _ready(self) -> Callable[[], asyncio.Protocol]:
        """The factory of the wanted protocol, once all models answer."""
        question = b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n"
        give_up = time.perf_counter() + READY_SECONDS
        while time.perf_counter() < give_up:
            await asyncio.sleep(0.02)
            if len(self._loop.factories) == 2:
                transport = self._open(self._loop.factories[0])
                self._feed(transport, question)
                await asyncio.sleep(0)
                if transport.written.startswith(b"HTTP/1.1 200 "):
                    transport.close()
                    break
                transport.close()
        else:
            raise TimeoutError("the server is not ready")
        gc.unfreeze()
        objects = gc.get_objects()
        # By their types: isinstance would ask every object of every library for its class, and some warn.
        self._budgets = [each for each in objects if type(each) is ByteBudget]
        self._versions = [each for each in objects if type(each) is LoadedVersion]
        return self._loop.factories[list(PROTOCOLS).index(self._wanted.protocol)]

    def _open(self, factory: Callable[[], asyncio.Protocol]) -> MemoryTransport:
        transport = MemoryTransport(self._loop)
        protocol = transport.protocol = factory()
        protocol.connection_made(transport)
        return transport

    def _feed(self, transport: MemoryTransport, wire: bytes) -> None:
        if transport.protocol is not None:
            transport.protocol.data_received(wire)

    async def _batch(self, cases: list[Case], factory: Callable[[], asyncio.Protocol]) -> None:
        transports = [self._open(factory) for _ in cases]
        asked = list(zip(cases, transports, strict=True))
        greeted = [(case, transport) for case, transport in asked if case.before]
        for case, transport in greeted:
            self._feed(transport, case.before)
        await self._wait([transport for _, transport in greeted])
        for case, transport in greeted:
            self._judge(Case(case.before, OK), transport.take())
        for case, transport in asked:
            try:
                self._send(transport, case.wire)
            except Exception as error:  # whatever comes out of a protocol is a finding
                self._found.add(f"escaped: {error!r}", case.wire)
        await self._wait([transport for case, transport in asked if case.statuses])
        for case, transport in asked:
            self._judge(case, transport.take())
            transport.close()
        await asyncio.sleep(0)
        if self._log.errors:
            for line in self._log.errors:
                self._found.add(line, b"\n----\n".join(case.wire for case in cases))
            self._log.errors.clear()

    def _send(self, transport: MemoryTransport, wire: bytes) -> None:
        """At once, or in two pieces, as networks do."""
        if self._source.random() < 0.75 or len(wire) < 2:
            self._feed(transport, wire)
            return
        cut = self._source.randrange(1, len(wire))
        self._feed(transport, wire[:cut])
        if not transport.closed:
            self._feed(transport, wire[cut:])

    async def _wait(self, expected: list[MemoryTransport]) -> None:
        """Let the server work until everything has an answer that has to have one."""
        give_up = self._loop.time() + ANSWER_SECONDS
        turns = 0
        while turns < 3 or (self._loop.time() < give_up and not all(self._has_answer(each) for each in expected)):
            await asyncio.sleep(0 if turns < 20 else 0.001)
            turns += 1

    def _has_answer(self, transport: MemoryTransport) -> bool:
        if self._wanted.protocol == "rest":
            return bool(transport.written)
        written = transport.written
        return transport.closed or b"grpc-status" in written or (len(written) > _GREETING and _broken_off(written))

    def _judge(self, case: Case, written: bytes) -> None:
        try:
            if self._wanted.protocol == "rest":
                statuses = http_statuses(written, head_only=case.wire.startswith(b"HEAD "))
            else:
                statuses = grpc_statuses(written)
        except MalformedAnswerError as error:
            self._found.add(f"malformed: {error}", case.wire)
            return
        if case.statuses and (not statuses or statuses[0] not in case.statuses | {-1 if 0 not in case.statuses else 0}):
            self._found.add(f"wanted {sorted(case.statuses)}, got {statuses[:3]}", case.wire)

    async def _check_leaks(self) -> None:
        for _ in range(LOOKS):  # what was cut off is still being computed
            if not self._leaks():
                return
            await asyncio.sleep(0.01)
        for leak in self._leaks():
            self._found.add(f"leak: {leak}", b"")

    def _leaks(self) -> list[str]:
        found = [f"{budget.used} bytes are reserved" for budget in self._budgets if budget.used]
        return found + [f"{each.in_flight} of {each.model} in flight" for each in self._versions if each.in_flight]


def _broken_off(written: bytearray) -> bool:
    try:
        return bool(grpc_statuses(bytes(written)))
    except MalformedAnswerError:
        return True


@contextlib.contextmanager
def _errors_kept() -> Iterator[Log]:
    log, root = Log(), logging.getLogger()
    root.addHandler(log)
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield log
    finally:
        root.removeHandler(log)
        root.setLevel(level)
