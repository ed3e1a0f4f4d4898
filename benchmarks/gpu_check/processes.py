"""Programs of this package, each in a process of its own that cannot outlive the check that started it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.gpu_check.done import Done
from benchmarks.gpu_check.figures import Got, got_between
from benchmarks.gpu_check.frame import CheckError
from benchmarks.gpu_check.workloads import Workload
from benchmarks.serving.processes import last_words
from tiercel.trainer_agent.runtimes.ranks import BY_GROUP, command_of

READY_SECONDS = 90.0
END_SECONDS = 10.0
_TOLD = 20_000
_POLL_SECONDS = 0.02


class TrainerProcess:
    """A training that does nothing yet; an async context manager that ends it. See :mod:`.trainer`."""

    def __init__(self, device: str, workload: Workload, log: Path) -> None:
        self._command = [sys.executable, "-m", "benchmarks.gpu_check.trainer", device, *workload.arguments()]
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._since: dict[float, float] = {}
        self.told: deque[Done] = deque(maxlen=_TOLD)
        """What it told, oldest first."""
        self.loss = 0.0
        """Of one of its last steps."""
        self.counted_seconds = 0.0
        """Device time by the pacer's own clock, which is what a run tells its agent."""

    async def __aenter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log
            )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            await end(self._process)
        if self._reading is not None:
            await asyncio.wait([self._reading])

    async def ready(self) -> None:
        """Wait until it could begin.

        Raises:
            CheckError: It ended, or took too long.
        """
        await self._until(self._ready.is_set, READY_SECONDS, "get ready")

    async def allow(self, share: float) -> float:
        """Let it use that share of the device's time, 1 for no limit and 0 for nothing; returns since when it does.

        Raises:
            CheckError: It ended, or does not answer.
        """
        process = self._started()
        self._since.pop(share, None)
        if process.stdin is None:
            raise CheckError("a training has no input")
        process.stdin.write(json.dumps({"share": share}).encode() + b"\n")
        await self._until(lambda: share in self._since, READY_SECONDS, "take a new share")
        return self._since[share]

    async def measure(self, seconds: float) -> Got:
        """What it gets in the next seconds; in as many more as it needs for three steps on a machine that is busy.

        Raises:
            CheckError: It ended, or made no three steps.
        """
        begin = time.monotonic()
        await asyncio.sleep(seconds)
        await self._until(lambda: got_between(self.told, begin, time.monotonic()), READY_SECONDS, "make three steps")
        return self.got(begin, time.monotonic())

    def got(self, begin: float, end: float) -> Got:
        """What it got between two moments of ``time.monotonic``.

        Raises:
            CheckError: It ended, or made no three steps.
        """
        got = got_between(self.told, begin, end)
        if got is None:
            self._started()
            raise CheckError(f"a training made no three steps in {end - begin:.0f} s; its log is {self._log}")
        return got

    def _started(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None or (self._reading and self._reading.done()):
            raise CheckError(f"a training ended: {last_words(self._log)}")
        return self._process

    async def _until(self, holds: Callable[[], object], seconds: float, what: str) -> None:
        give_up = time.monotonic() + seconds
        while not holds():
            self._started()
            if time.monotonic() > give_up:
                raise CheckError(f"a training did not {what} within {seconds:.0f} s; its log is {self._log}")
            await asyncio.sleep(_POLL_SECONDS)

    async def _read(self) -> None:
        stdout = self._started().stdout
        while stdout is not None and (line := await stdout.readline()):
            news = json.loads(line)
            if "ready" in news:
                self._ready.set()
            elif "since" in news:
                self._since[news["share"]] = news["since"]
            else:
                self.loss, self.counted_seconds = news["loss"], news["counted_seconds"]
                done = Done(news["at"], news["busy_seconds"], news["steps"])
                if not self.told or done.steps > self.told[-1].steps:
                    self.told.append(done)


async def output_of(module: str, *arguments: str, seconds: float, log: Path, ranks: int = 1) -> dict[str, Any]:
    """The JSON that a program of this package prints; one of several ranks is started as a run of a job is.

    Raises:
        CheckError: It failed, or took too long.
    """
    command = [sys.executable, "-m", f"benchmarks.gpu_check.{module}", *arguments]
    if ranks > 1:
        command = command_of(ranks, BY_GROUP, sys.executable, command)
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate()
    except TimeoutError:
        raise CheckError(f"{module} took longer than {seconds:.0f} s; its log is {log}") from None
    finally:
        await end(process)
    if process.returncode:
        raise CheckError(f"{module} failed: {last_words(log)}")
    found: dict[str, Any] = json.loads(output)
    return found


async def end(process: asyncio.subprocess.Process) -> None:
    """Close its input, and kill it if it does not end by itself. Doing it twice is harmless."""
    if process.stdin is not None:
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
