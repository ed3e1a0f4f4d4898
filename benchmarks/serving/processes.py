"""A server in processes of its own: started, waited for, its CPU time and memory read, ended without a trace."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.serving.environments import UnavailableError
from testing.cpu import cpu_seconds

MARK = "TIERCEL_BENCHMARK_SERVER"
"""Environment variable by which all processes of a server are known, also those that left their parent."""

STOP_SECONDS = 10.0
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Launch:
    """How a server is started and when it is there."""

    command: Sequence[str]  # its command line
    folder: Path  # its working directory
    http_port: int = 0  # where it answers HTTP; 0 if it does not
    grpc_port: int = 0  # where it answers gRPC; 0 if it does not
    environment: Mapping[str, str] = field(default_factory=dict)  # variables besides those of this process
    ready_path: str = ""  # answers 200 to GET once all is ready; empty when a port that listens is all there is to know
    ready_file: Path | None = None  # has to be there, too, where the server's program writes one
    ready_seconds: float = 60.0  # it has to be ready after so long


class ServerProcesses:
    """A running server and everything that it started."""

    def __init__(self, launch: Launch, process: subprocess.Popen[bytes], mark: str, log: Path) -> None:
        self.launch = launch
        self.log = log
        self._process = process
        self._mark = mark

    def processes(self) -> list[psutil.Process]:
        """All of its processes that live."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def cpu_seconds(self) -> float:
        """CPU time, in user and system mode, that its living processes have used."""
        total = 0.0
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                total += cpu_seconds(process)
        return total

    def pss_bytes(self) -> int:
        """Memory: what its processes have for themselves, and their part of what they share (PSS)."""
        return sum(_pss(process.pid) for process in self.processes())

    def wait_ready(self) -> None:
        """Wait until it answers.

        Raises:
            UnavailableError: It ended, or took too long; the end of its log is in the message.
        """
        give_up = time.monotonic() + self.launch.ready_seconds
        while not self._is_ready():
            if self._process.poll() is not None:
                raise UnavailableError(f"it ended with {self._process.returncode}: {self.last_words()}")
            if time.monotonic() > give_up:
                raise UnavailableError(f"not ready after {self.launch.ready_seconds:.0f} s: {self.last_words()}")
            time.sleep(POLL_SECONDS)  # a server of somebody else's: it tells nobody when it is ready

    def last_words(self) -> str:
        """The last lines of its log as one."""
        return last_words(self.log)

    def stop(self) -> None:
        """End all of it: first as its users would, then by force."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        for how in (psutil.Process.terminate, psutil.Process.kill):
            rest = self.processes()
            for process in rest:
                with contextlib.suppress(psutil.NoSuchProcess):
                    how(process)
            psutil.wait_procs(rest, timeout=3.0)
        self._process.wait(STOP_SECONDS)

    def _is_ready(self) -> bool:
        launch = self.launch
        ports = [port for port in (launch.http_port, launch.grpc_port) if port]
        if not all(_listens(port) for port in ports) or (launch.ready_file and not launch.ready_file.exists()):
            return False
        return not launch.ready_path or _status(launch.http_port, launch.ready_path) == 200

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(MARK) == self._mark
        except (psutil.Error, OSError):
            return False


@contextlib.contextmanager
def running(launch: Launch, log: Path) -> Iterator[ServerProcesses]:
    """A server that is ready, until the context ends.

    Raises:
        UnavailableError: It did not start.
    """
    mark = uuid.uuid4().hex
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                launch.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=launch.folder,
                env={**os.environ, **launch.environment, MARK: mark},
                start_new_session=True,
            )
        except OSError as error:
            raise UnavailableError(f"{launch.command[0]} cannot be started: {error.strerror}") from error
    server = ServerProcesses(launch, process, mark, log)
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


def last_words(log: Path) -> str:
    """The end of a log as one line."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return " / ".join(line.strip() for line in lines[-3:] if line.strip())[-400:] or "it said nothing"


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody uses at the moment, for servers that must be told theirs."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _status(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5.0)
    with contextlib.closing(connection):
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
