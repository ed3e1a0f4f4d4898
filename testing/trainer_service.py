"""A real TrainerService on a real Unix socket, played by a test instead of an agent."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from pathlib import Path
from typing import Protocol

import grpc

from testing.warm_python import WarmProcess, WarmPython
from tiercel.v1 import common_pb2, trainer_pb2, trainer_pb2_grpc

TOKEN = "a-secret-of-this-run"
TIMEOUT_SECONDS = 60.0
ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "testing" / "scripts"


@dataclasses.dataclass
class Recorded:
    """What a training process has sent so far, over all connections."""

    hellos: list[trainer_pb2.TrainerHello] = dataclasses.field(default_factory=list)
    reports: list[trainer_pb2.TrainerReport] = dataclasses.field(default_factory=list)
    export_done: list[trainer_pb2.ExportDone] = dataclasses.field(default_factory=list)
    use: list[trainer_pb2.AcceleratorUse] = dataclasses.field(default_factory=list)


class TrainerServer(trainer_pb2_grpc.TrainerServiceServicer):
    """Serves one run; the test says what to answer and waits for what comes.

    Args:
        run_directory: Folder of the run; its parts are made.
        metric: The spec's metric.
        tiers: Targets not delivered yet, easiest first.
        smaller_is_better: Whether the metric is minimised.
        run_id: Of the welcome.
        max_epochs: Of the welcome; 0 for no limit.
        cpu_cores: Of the welcome.
        accelerators: Of the welcome.
        acknowledge: Whether reports are acknowledged.
        request_exports: Whether a report that reaches a tier, or that the training has ended, is answered by a request
            for the model.
        keep_from: Of the welcome; None for nothing beyond the tiers.
    """

    def __init__(
        self,
        run_directory: Path,
        *,
        metric: str = "accuracy",
        tiers: tuple[float, ...] = (),
        smaller_is_better: bool = False,
        run_id: str = "job-1",
        max_epochs: int = 0,
        cpu_cores: float = 1.0,
        accelerators: tuple[common_pb2.AcceleratorShare, ...] = (),
        acknowledge: bool = True,
        request_exports: bool = True,
        keep_from: float | None = None,
    ) -> None:
        self.run_directory = run_directory
        for name in ("exports", "checkpoints", "program", "work"):
            (run_directory / name).mkdir(parents=True, exist_ok=True)
        (run_directory / "token").write_text(TOKEN + "\n")
        self.metric, self.tiers, self.smaller_is_better = metric, tiers, smaller_is_better
        self.run_id, self.max_epochs, self.cpu_cores = run_id, max_epochs, cpu_cores
        self.accelerators = accelerators
        self.acknowledge, self.request_exports = acknowledge, request_exports
        self.keep_from = keep_from
        self.recorded = Recorded()
        self._changed = threading.Condition()
        self._streams: list[queue.SimpleQueue[trainer_pb2.AttachResponse | None]] = []
        self._requested: set[float] = set()
        self._server: grpc.Server | None = None

    def start(self) -> None:
        """Listen on the run's socket."""
        directory_fd = os.open(self.run_directory, os.O_PATH | os.O_DIRECTORY)
        try:
            (self.run_directory / "agent.sock").unlink(missing_ok=True)
            self._server = grpc.server(futures.ThreadPoolExecutor(4))
            trainer_pb2_grpc.add_TrainerServiceServicer_to_server(self, self._server)
            # Through the descriptor, since a test's folder may be longer than a socket's path may be.
            assert self._server.add_insecure_port(f"unix:/proc/self/fd/{directory_fd}/agent.sock")
            self._server.start()
        finally:
            os.close(directory_fd)

    def stop(self) -> None:
        """Break every connection and stop to listen. Twice does no harm."""
        if self._server is None:
            return
        with self._changed:
            streams, self._streams = self._streams, []
        for stream in streams:
            stream.put(None)
        self._server.stop(grace=0).wait(TIMEOUT_SECONDS)
        self._server = None

    def send(self, response: trainer_pb2.AttachResponse) -> None:
        """Send a message on every connection."""
        with self._changed:
            for stream in self._streams:
                stream.put(response)

    def request_stop(self, reason: str = "a test", *, finish: bool = False) -> None:
        """Ask the process to stop; ``finish``: as after its last epoch."""
        self.send(trainer_pb2.AttachResponse(stop=trainer_pb2.StopRequest(reason=reason, finish=finish)))

    def request_pace(self, cores: float, *, accelerator_fraction: float = 0.0) -> None:
        """Ask the process to use so many cores, and that much of the time of its devices."""
        pace = trainer_pb2.PaceRequest(cores=cores, accelerator_fraction=accelerator_fraction)
        self.send(trainer_pb2.AttachResponse(pace=pace))

    def request_export(self, delivery_id: str, target: float, tier: int = 1) -> None:
        """Ask the process for a model."""
        request = trainer_pb2.ExportRequest(delivery_id=delivery_id, tier=tier, target=target)
        self.send(trainer_pb2.AttachResponse(export=request))

    def wait_until(self, condition: Callable[[Recorded], object], timeout: float = TIMEOUT_SECONDS) -> None:
        """Wait for something to have been sent.

        Raises:
            AssertionError: If it is not within ``timeout`` seconds; says what was.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: bool(condition(self.recorded)), timeout):
                message = f"not within {timeout} s; so far: {self.recorded}"
                raise AssertionError(message)

    def Attach(  # noqa: N802 - gRPC's name
        self, request_iterator: Iterator[trainer_pb2.AttachRequest], context: grpc.ServicerContext
    ) -> Iterator[trainer_pb2.AttachResponse]:
        """One connection, until the process half-closes it."""
        hello = next(request_iterator).hello
        if hello.token != TOKEN:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong token")
        answers: queue.SimpleQueue[trainer_pb2.AttachResponse | None] = queue.SimpleQueue()
        answers.put(trainer_pb2.AttachResponse(welcome=self._welcome()))
        with self._changed:
            self.recorded.hellos.append(hello)
            self._streams.append(answers)
            self._changed.notify_all()
        reader = threading.Thread(target=self._read, args=(request_iterator, answers), daemon=True)
        reader.start()
        yield from iter(answers.get, None)

    def _welcome(self) -> trainer_pb2.TrainerWelcome:
        direction = common_pb2.DIRECTION_MIN if self.smaller_is_better else common_pb2.DIRECTION_MAX
        return trainer_pb2.TrainerWelcome(
            run_id=self.run_id,
            metric=self.metric,
            direction=direction,
            tiers=[common_pb2.Tier(target=target) for target in self.tiers],
            max_epochs=self.max_epochs,
            cpu_cores=self.cpu_cores,
            accelerators=self.accelerators,
            keep_from=self.keep_from,
        )

    def _read(
        self,
        requests: Iterator[trainer_pb2.AttachRequest],
        answers: queue.SimpleQueue[trainer_pb2.AttachResponse | None],
    ) -> None:
        try:
            for request in requests:
                match request.WhichOneof("message"):
                    case "report":
                        self._take_report(request.report, answers)
                    case "export_done":
                        with self._changed:
                            self.recorded.export_done.append(request.export_done)
                            self._changed.notify_all()
                    case "use":
                        with self._changed:
                            self.recorded.use.append(request.use)
                            self._changed.notify_all()
        except grpc.RpcError:
            pass  # the connection is gone, which the other side of it sees as well
        finally:
            answers.put(None)

    def _take_report(
        self, report: trainer_pb2.TrainerReport, answers: queue.SimpleQueue[trainer_pb2.AttachResponse | None]
    ) -> None:
        with self._changed:
            self.recorded.reports.append(report)
            self._changed.notify_all()
        if self.acknowledge:
            answers.put(trainer_pb2.AttachResponse(report_ack=trainer_pb2.ReportAck(sequence=report.sequence)))
        value = report.metrics.get(self.metric, float("nan"))
        for number, target in enumerate(self.tiers, 1):
            reached = value <= target if self.smaller_is_better else value >= target
            if self.request_exports and reached and target not in self._requested:
                self._requested.add(target)
                request = trainer_pb2.ExportRequest(delivery_id=f"job-tier-{number}", tier=number, target=target)
                answers.put(trainer_pb2.AttachResponse(export=request))
        if report.ended and self.request_exports:
            best = trainer_pb2.ExportRequest(delivery_id="job-best-1", tier=0, target=self.tiers[-1])
            answers.put(trainer_pb2.AttachResponse(export=best))


@dataclasses.dataclass(frozen=True)
class Finished:
    """A training process that has ended."""

    returncode: int
    output: str


def training_environment() -> dict[str, str]:
    """The environment of a training process, without what it is told of its run."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TIERCEL_")}
    return variables | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def _start(arguments: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


class TrainingProcess:
    """A training script in a process of its own.

    Args:
        arguments: Of the Python interpreter.
        run_directory: Its run, or None for a script that runs alone.
        environment: Added to it.
        python: A template to fork; None for an interpreter that begins with nothing.
    """

    def __init__(
        self,
        *arguments: str,
        run_directory: Path | None = None,
        environment: dict[str, str] | None = None,
        python: WarmPython | None = None,
    ) -> None:
        variables = training_environment() | (environment or {})
        if run_directory is not None:
            variables["TIERCEL_RUN_DIR"] = str(run_directory)
        self.process: subprocess.Popen[str] | WarmProcess = (
            python.start(arguments, variables) if python is not None else _start(arguments, variables)
        )

    def wait(self, timeout: float = TIMEOUT_SECONDS) -> Finished:
        """Wait for its end."""
        output, _ = self.process.communicate(timeout=timeout)
        code = self.process.returncode
        assert code is not None
        return Finished(code, output)

    def kill(self) -> None:
        """End it at once, if it still runs."""
        self.process.kill()
        self.process.communicate(timeout=TIMEOUT_SECONDS)


class StartServer(Protocol):
    """Starts a server in the run's folder."""

    def __call__(
        self,
        *,
        metric: str = "accuracy",
        tiers: tuple[float, ...] = (),
        smaller_is_better: bool = False,
        run_id: str = "job-1",
        max_epochs: int = 0,
        accelerators: tuple[common_pb2.AcceleratorShare, ...] = (),
        acknowledge: bool = True,
        request_exports: bool = True,
        keep_from: float | None = None,
    ) -> TrainerServer:
        """Start it; see :class:`TrainerServer`."""


class StartScript(Protocol):
    """Starts one of :data:`SCRIPTS`."""

    def __call__(self, name: str, *arguments: str, alone: bool = False, **environment: str) -> TrainingProcess:
        """Start it in the run's folder, or alone."""


def sha256_of(path: Path) -> str:
    """Digest of a file, hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def wait_for(condition: Callable[[], object], timeout: float = TIMEOUT_SECONDS) -> None:
    """Poll for something outside of this process, e.g. a file."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)  # as it says
