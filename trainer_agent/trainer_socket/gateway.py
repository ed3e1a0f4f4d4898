"""The agent's end of the socket in a run's folder: reports come in, requests for models, paces and stops go out.

What goes out is kept as state (the latest pace, the exports that are open, the wish to stop), so that a trainer that
attaches again is told all of it again.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import os
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import grpc
from grpc import aio

from tiercel.core.tasks import run_until_one_ends
from tiercel.trainer_agent.disk.job_folder import SOCKET
from tiercel.trainer_agent.errors import DeliveryFailedError, FallsShortError
from tiercel.trainer_agent.reports.metric_names import MetricNames
from tiercel.trainer_agent.reports.sieve import REPORTS_PER_SECOND, Goal, ReportSieve
from tiercel.trainer_agent.reports.token_bucket import TokenBucket
from tiercel.trainer_agent.supervision import Signal
from tiercel.trainer_agent.trainer_socket.door import CONNECTIONS, TrainerDoor, fits, socket_path
from tiercel.trainer_agent.trainer_socket.refusals import Refusals
from tiercel.v1 import protocol_mismatch, trainer_pb2, trainer_pb2_grpc

# The largest that a trainer library sends: a report with all the metrics that go on takes 6 KB.
_MESSAGE_BYTES: Final = 64 * 1024
_QUEUED_MESSAGES: Final = 1024
_HELLO_SECONDS: Final = 10.0
_MESSAGES_PER_SECOND: Final = 200.0
_MESSAGES_AT_ONCE: Final = 400.0
_STREAMS: Final = 4
_MAX_ERROR_CHARACTERS: Final = 4000
_MAX_SHA256_CHARACTERS: Final = 64

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.max_concurrent_streams", _STREAMS),
    ("grpc.http2.bdp_probe", 0),  # it would read further ahead of us the faster the other side writes
    ("grpc.http2.lookahead_bytes", _MESSAGE_BYTES),
    ("grpc.absolute_max_metadata_size", 8 * 1024),
    # A connection that is not used makes room for another one.
    ("grpc.server_handshake_timeout_ms", 2_000),
    ("grpc.max_connection_idle_ms", 10_000),
    ("grpc.so_reuseport", 0),
)

_MERGED: Final = (
    f"reports that come faster than {REPORTS_PER_SECOND:g} a second, or have more than 1 MiB in a minute, are thinned "
    "out: the best and the latest of each moment count, and each that reaches a tier"
)
_CROWDED: Final = f"more than {CONNECTIONS} connections to the socket of the run are refused: one is enough"

Report = Callable[[trainer_pb2.TrainerReport], Awaitable[None]]
Use = Callable[[trainer_pb2.AcceleratorUse], None]
_Context = aio.ServicerContext[trainer_pb2.AttachRequest, trainer_pb2.AttachResponse]


class TrainerGateway(trainer_pb2_grpc.TrainerServiceServicer):
    """Serves one run.

    Args:
        ingest: What to do with each report that goes on; the trainer's next message waits for it.
        on_begun: What to do when it begins to train; the trainer's next message waits for it.
        on_use: What to do with what it says that it used of accelerators; may not block.
        last_sequence: Number of the newest report that an earlier life of the agent took in.
    """

    def __init__(
        self,
        welcome: trainer_pb2.TrainerWelcome,
        goal: Goal,
        token: str,
        ingest: Report,
        on_begun: Callable[[], Awaitable[None]],
        on_use: Use = lambda _: None,
        write_line: Callable[[str], None] = lambda _: None,
        last_sequence: int = 0,
    ) -> None:
        self._welcome = welcome
        self._token = token
        self._ingest = ingest
        self._on_begun = on_begun
        self._on_use = on_use
        self._attachment: _Attachment | None = None
        self._last_sequence = last_sequence
        now = time.monotonic()
        self._messages = TokenBucket(_MESSAGES_PER_SECOND, _MESSAGES_AT_ONCE, now)
        self._names = MetricNames(goal.metric)
        self._sieve = ReportSieve(goal, now)
        self._sieve_changed = Signal()
        self._due: deque[trainer_pb2.TrainerReport] = deque()
        self._passing_on = asyncio.Lock()
        self._refusals = Refusals(write_line)
        self._pace: trainer_pb2.PaceRequest | None = None
        self._stop: trainer_pb2.StopRequest | None = None
        self._exports: dict[str, _Export] = {}
        self._server: aio.Server | None = None
        self._door: TrainerDoor | None = None
        self._inner_folder: str | None = None
        self._closed = False

    @property
    def is_attached(self) -> bool:
        """Whether a trainer is connected now."""
        return self._attachment is not None

    @property
    def report_counts(self) -> tuple[int, int]:
        """How many reports came in, and how many of them gave way to others."""
        return self._sieve.taken_in, self._sieve.left_out

    async def open(self, folder: Path, inner_folder: Path) -> None:
        """Make the socket in ``folder``; who connects waits for :meth:`serve`.

        Args:
            folder: The job's.
            inner_folder: For a socket of our own that the job cannot reach, where its path is short enough. A later
                life finds it there and uses it anew; it is removed in the end.

        Raises:
            OSError: The socket cannot be made there.
            RuntimeError: Likewise.
        """
        if fits(inner_folder):
            shutil.rmtree(inner_folder, ignore_errors=True)
            inner_folder.mkdir(mode=0o700, parents=True)
            self._inner_folder = os.fspath(inner_folder.absolute())
        else:
            self._inner_folder = tempfile.mkdtemp(prefix="tiercel-")
        inner = f"{self._inner_folder}/{SOCKET}"
        # One more than a trainer that attaches again needs; each waits for a hello.
        self._server = aio.server(options=_OPTIONS, maximum_concurrent_rpcs=_STREAMS)
        trainer_pb2_grpc.add_TrainerServiceServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{inner}")
        await self._server.start()
        with socket_path(folder) as path:
            self._door = TrainerDoor(path, inner, lambda: self._refusals.note(_CROWDED))

    async def serve(self) -> None:
        """Let trainers in, until cancelled."""
        if self._door is not None:
            await self._door.run()

    async def close(self, grace_seconds: float) -> None:
        """Take in what the trainer has sent already, for a while, then end; open exports fail.

        Args:
            grace_seconds: How long a stream that is still open may go on.
        """
        self._closed = True
        if self._server is not None:
            await self._server.stop(grace_seconds)
            self._server = None
        if self._door is not None:
            self._door.close()
            self._door = None
        if self._inner_folder is not None:
            shutil.rmtree(self._inner_folder, ignore_errors=True)
            self._inner_folder = None
        self._due.extend(self._sieve.release(time.monotonic(), at_once=True))
        await self._pass_on()
        self._refusals.sum_up()
        for export in self._exports.values():
            export.fail("The run ended before it handed over the model.")

    def pace(self, cores: float, accelerator_fraction: float = 0.0) -> None:
        """Ask the trainer to use so much on average; 0 for no limit.

        Args:
            cores: Of the CPU.
            accelerator_fraction: Of the time of each accelerator that it holds.
        """
        pace = trainer_pb2.PaceRequest(cores=cores, accelerator_fraction=accelerator_fraction)
        if pace == (self._pace or trainer_pb2.PaceRequest()):
            return
        self._pace = pace
        self._send(trainer_pb2.AttachResponse(pace=pace))

    def stop(self, reason: str, *, finish: bool = False) -> None:
        """Ask the trainer to save a checkpoint and leave; ``finish``: as if its last epoch were over."""
        self._stop = trainer_pb2.StopRequest(reason=reason, finish=finish)
        self._send(trainer_pb2.AttachResponse(stop=self._stop))

    async def export(self, request: trainer_pb2.ExportRequest, deadline_seconds: float) -> trainer_pb2.ExportDone:
        """Ask the trainer for its model and wait until it has handed it over.

        Raises:
            FallsShortError: The model misses the target.
            DeliveryFailedError: It did not, in time or at all; says why.
        """
        if self._closed:
            raise DeliveryFailedError("The run ended before it handed over the model.")
        export = self._exports.setdefault(request.delivery_id, _Export(request))
        self._send(trainer_pb2.AttachResponse(export=request))
        try:
            async with asyncio.timeout(deadline_seconds):
                done = await export.wait()
        except TimeoutError:
            raise DeliveryFailedError(
                f"The script did not hand over the model within {deadline_seconds:g} s: it has to call the trainer "
                "library at least that often."
            ) from None
        finally:
            self._exports.pop(request.delivery_id, None)
        if done.error:
            raise (FallsShortError if done.falls_short else DeliveryFailedError)(done.error)
        return done

    async def Attach(  # type: ignore[override]  # noqa: N802 - the contract's name; a coroutine may serve a stream too
        self, request_iterator: object, context: _Context
    ) -> None:
        """Serve a trainer for as long as its stream lasts; a newer stream ends an older one."""
        del request_iterator  # messages are read and written by two tasks
        await self._check_hello(context)
        attachment = _Attachment(self._first_messages())
        if self._attachment is not None:
            self._attachment.end()
        self._attachment = attachment
        try:
            await run_until_one_ends(
                read=self._read(context),
                write=attachment.write(context),
                displaced=attachment.wait_ended(),
                release=self._release_reports(),
            )
        finally:
            if self._attachment is attachment:
                self._attachment = None

    async def _check_hello(self, context: _Context) -> None:
        await self._wait_turn()
        try:
            async with asyncio.timeout(_HELLO_SECONDS):
                first: Any = await context.read()
        except TimeoutError:
            first = aio.EOF
        if not isinstance(first, trainer_pb2.AttachRequest) or first.WhichOneof("message") != "hello":
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "The first message has to be a hello.")
        if not hmac.compare_digest(first.hello.token.encode(), self._token.encode()):
            await context.abort(
                grpc.StatusCode.UNAUTHENTICATED, "This is not the token in the run's folder: read it again."
            )
        mismatch = protocol_mismatch(first.hello.protocol, "the script's trainer library", "the agent")
        if mismatch:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, mismatch)

    def _first_messages(self) -> list[trainer_pb2.AttachResponse]:
        messages = [trainer_pb2.AttachResponse(welcome=self._welcome)]
        if self._pace is not None:
            messages.append(trainer_pb2.AttachResponse(pace=self._pace))
        messages += [trainer_pb2.AttachResponse(export=export.request) for export in self._exports.values()]
        if self._stop is not None:
            messages.append(trainer_pb2.AttachResponse(stop=self._stop))
        return messages

    async def _read(self, context: _Context) -> None:
        while isinstance(message := await context.read(), trainer_pb2.AttachRequest):
            match message.WhichOneof("message"):
                case "report":
                    await self._report(message.report)
                case "export_done":
                    self._export_done(message.export_done)
                case "begun":
                    await self._on_begun()
                case "use":
                    if math.isfinite(message.use.accelerator_seconds) and message.use.accelerator_seconds >= 0:
                        self._on_use(message.use)
            await self._wait_turn()

    async def _wait_turn(self) -> None:
        """Count a message, and wait until the next one may come."""
        self._messages.take(1, time.monotonic())
        await asyncio.sleep(self._messages.seconds_until_room(time.monotonic()))

    async def _report(self, report: trainer_pb2.TrainerReport) -> None:
        if report.sequence > self._last_sequence:
            self._last_sequence = report.sequence
            metrics, left_out = self._names.accepted(report.metrics)
            for reason, count in left_out.items():
                self._refusals.note(reason, count)
            accepted = trainer_pb2.TrainerReport(
                sequence=report.sequence, epoch=report.epoch, metrics=metrics, ended=report.ended
            )
            merged = self._sieve.left_out
            self._due.extend(self._sieve.ingest(accepted, time.monotonic()))
            if self._sieve.left_out > merged:
                self._refusals.note(_MERGED, self._sieve.left_out - merged)
            self._sieve_changed.fire()
            await self._pass_on()
        ack = trainer_pb2.ReportAck(sequence=report.sequence)
        self._send(trainer_pb2.AttachResponse(report_ack=ack))

    async def _release_reports(self) -> None:
        """Pass on the reports that wait, as it is time."""
        while True:
            await self._pass_on()
            seconds = self._sieve.seconds_until_due(time.monotonic())
            if seconds is None:
                await self._sieve_changed.wait()
                continue
            await asyncio.sleep(seconds)
            self._due.extend(self._sieve.release(time.monotonic()))

    async def _pass_on(self) -> None:
        async with self._passing_on:  # in the order of their numbers: the broker takes none that comes late
            while self._due:
                await self._ingest(self._due[0])
                self._due.popleft()  # only now: a stream may break off in the middle

    def _export_done(self, done: trainer_pb2.ExportDone) -> None:
        export = self._exports.get(done.delivery_id)
        if export is None:  # nobody waits for it any more
            return
        if done.falls_short and done.request_number != export.request.request_number:
            return  # a new stream repeats what was answered to an earlier request
        done.error = done.error[:_MAX_ERROR_CHARACTERS]
        done.sha256 = done.sha256[:_MAX_SHA256_CHARACTERS]
        export.succeed(done)

    def _send(self, message: trainer_pb2.AttachResponse) -> None:
        if self._attachment is not None:
            self._attachment.send(message)


class _Attachment:
    """One stream of the trainer: what is still to be written to it."""

    def __init__(self, first: list[trainer_pb2.AttachResponse]) -> None:
        self._queue: asyncio.Queue[trainer_pb2.AttachResponse] = asyncio.Queue(_QUEUED_MESSAGES)
        self._ended = asyncio.Event()
        for message in first:
            self.send(message)

    def send(self, message: trainer_pb2.AttachResponse) -> None:
        """Queue a message; a trainer that does not read is cut off, and told everything when it attaches again."""
        try:
            self._queue.put_nowait(message)
        except asyncio.QueueFull:
            self.end()

    def end(self) -> None:
        """End the stream."""
        self._ended.set()

    async def wait_ended(self) -> None:
        """Wait until the stream shall end."""
        await self._ended.wait()

    async def write(self, context: _Context) -> None:
        """Write what is queued, for ever."""
        while True:
            await context.write(await self._queue.get())


class _Export:
    """A request for a model, and its answer once there is one."""

    def __init__(self, request: trainer_pb2.ExportRequest) -> None:
        self.request = request
        self._answer: asyncio.Future[trainer_pb2.ExportDone] = asyncio.get_running_loop().create_future()

    def succeed(self, done: trainer_pb2.ExportDone) -> None:
        """Answer it; a second answer changes nothing."""
        if not self._answer.done():
            self._answer.set_result(done)

    def fail(self, reason: str) -> None:
        """Answer it with an error."""
        self.succeed(trainer_pb2.ExportDone(delivery_id=self.request.delivery_id, error=reason))

    async def wait(self) -> trainer_pb2.ExportDone:
        """Wait for the answer."""
        return await asyncio.shield(self._answer)
