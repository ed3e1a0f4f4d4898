"""The product as its users run it: ``tiercel up`` in a process of its own, on ports that are free."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self

import psutil

from testing.hosts import Host
from tiercel.trainer_agent.limits.entering import NAME as ENTERING

ADDRESSES = ("broker", "nodes", "serving_http", "serving_grpc", "mqtt", "dashboard")
PORT_OPTIONS = ("--broker-port", "--nodes-port", "--http-port", "--grpc-port", "--mqtt-port")
START_SECONDS = 120.0
STOP_SECONDS = 45.0
POLL_SECONDS = 0.05


class ProductError(Exception):
    """``tiercel up`` did not do what it should; the message says what and where its log is."""


def tiercel_command(*arguments: str) -> list[str]:
    """The command line of ``tiercel`` in this Python environment; of this tree where it is not installed."""
    installed = Path(sys.executable).parent / "tiercel"
    return [*([str(installed)] if installed.exists() else [sys.executable, "-m", "tiercel"]), *arguments]


class Begun(Protocol):
    """A process of ``tiercel up``, as :mod:`asyncio.subprocess` has it."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def send_signal(self, signal: int, /) -> None: ...

    def kill(self) -> None: ...

    async def wait(self) -> int: ...


class Product:
    """A running ``tiercel up``; an async context manager that stops it and makes sure that nothing of it is left.

    Args:
        state_dir: Its state directory.
        log: File that its output is appended to.
        options: More options of ``tiercel up``.
        environment: Variables that it gets besides those of this process.
        host: Where it runs; this machine when left out.
    """

    def __init__(
        self,
        state_dir: Path,
        log: Path,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        host: Host | None = None,
    ) -> None:
        self.state_dir = state_dir
        self.log = log
        self._options = tuple(options)
        self._environment = dict(environment or {})
        self._host = host
        self._process: Begun | None = None

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self._leave_nothing()
            raise
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProductError):
                await self.stop()
        await self._leave_nothing()

    @property
    def pid(self) -> int:
        """Process id of ``tiercel up``.

        Raises:
            ProductError: It was not started.
        """
        return self._started().pid

    @property
    def is_running(self) -> bool:
        """Whether ``tiercel up`` was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    @property
    def addresses(self) -> dict[str, str]:
        """Where things listen, as ``addresses.json`` says; what is not there yet is left out."""
        try:
            content = json.loads((self.state_dir / "addresses.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return {name: str(content[name]) for name in ADDRESSES if content.get(name)}

    async def start(self) -> None:
        """Start it and wait until everything listens.

        Raises:
            ProductError: It ended, or took too long.
        """
        before = self._file_written()
        ports = [argument for option in PORT_OPTIONS for argument in (option, "0")]
        command = tiercel_command("up", "--state-dir", str(self.state_dir), *ports, *self._options)
        if self._host is not None:
            command = self._host.command(*command)
        with self.log.open("ab") as log:
            self._process = await self._begin(command, os.environ | self._environment, log)
        await self._wait_addresses(before)

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop, as Ctrl-C does, and wait for its end.

        Returns:
            Its exit code.

        Raises:
            ProductError: It took too long.
        """
        process = self._started()
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(how)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                return await process.wait()
        except TimeoutError:
            message = f"'tiercel up' did not stop within {STOP_SECONDS:.0f} s; its log is {self.log}"
            raise ProductError(message) from None

    async def kill(self) -> None:
        """End it at once, without a chance to tidy up: what it started lives on."""
        process = self._started()
        process.kill()
        await process.wait()

    def left_over(self) -> list[str]:
        """Command lines of living processes that belong to the state directory."""
        return [" ".join(_command_line(process)) for process in processes_of(self.state_dir)]

    async def _begin(self, command: Sequence[str], environment: Mapping[str, str], log: BinaryIO) -> Begun:
        # A session of its own: Ctrl-C in the terminal is for whoever started it, who then stops it in order.
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )

    def _started(self) -> Begun:
        if self._process is None:
            raise ProductError("'tiercel up' was not started")
        return self._process

    def _file_written(self) -> tuple[int, int]:
        """Tells one writing of ``addresses.json`` from another."""
        try:
            status = (self.state_dir / "addresses.json").stat()
        except FileNotFoundError:
            return 0, 0
        return status.st_ino, status.st_mtime_ns

    async def _wait_addresses(self, before: tuple[int, int]) -> None:
        process = self._started()
        try:
            async with asyncio.timeout(START_SECONDS):
                # What an earlier run wrote tells of ports that nobody may listen on any more.
                while self._file_written() == before or set(self.addresses) != set(ADDRESSES):
                    if process.returncode is not None:
                        raise ProductError(
                            f"'tiercel up' ended with exit code {process.returncode}: {self._last_words()}; "
                            f"its log is {self.log}"
                        )
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            missing = ", ".join(sorted(set(ADDRESSES) - set(self.addresses)))
            message = f"'tiercel up' did not say within {START_SECONDS:.0f} s where these listen: {missing}; "
            raise ProductError(f"{message}its log is {self.log}") from None

    def _last_words(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")
        return " ".join(line.strip() for line in lines[-4:] if line.strip()) or "it said nothing"

    async def _leave_nothing(self) -> None:
        """Kill what is left: a benchmark that failed must not disturb the next one."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        for _ in range(3):  # one that is killed may just have started another
            await asyncio.to_thread(kill_all, processes_of(self.state_dir))


def processes_of(state_dir: Path) -> list[psutil.Process]:
    """Living processes that were started for a state directory: its path is in their arguments or environment."""
    # An environment variable such as TIERCEL_RUN_DIR names a folder below it; the caller's own PWD may be it.
    path = str(state_dir.resolve())
    return [process for process in psutil.process_iter() if process.pid != os.getpid() and _mentions(process, path)]


def _mentions(process: psutil.Process, path: str) -> bool:
    command = _command_line(process)
    # All of ours are Python, or about to become it; somebody's pager on a log file is none of ours.
    if not command or not (Path(command[0]).name.startswith("python") or ENTERING in command):
        return False
    words = [*command, *_environment(process)]
    return any(word == path or f"{path}/" in word or word.endswith(path) for word in words)


def _command_line(process: psutil.Process) -> list[str]:
    """Empty for a process that has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _environment(process: psutil.Process) -> list[str]:
    try:
        return [f"{name}={value}" for name, value in process.environ().items()]
    except psutil.Error:
        return []


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """Kill processes and wait for their end."""
    doomed = list(processes)
    for process in doomed:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(doomed, timeout=10)
