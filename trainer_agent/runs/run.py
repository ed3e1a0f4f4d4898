"""One run, from its preparation to its confirmed end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tiercel.core.exit_codes import is_retried
from tiercel.trainer_agent.accelerators.contract import AcceleratorReading
from tiercel.trainer_agent.disk.job_folder import JobFolder
from tiercel.trainer_agent.disk.names import check_run
from tiercel.trainer_agent.errors import RunFailedError, TransferError
from tiercel.trainer_agent.limits.contract import Share
from tiercel.trainer_agent.reports.run_log import RunLog
from tiercel.trainer_agent.reports.token_bucket import TokenBucket
from tiercel.trainer_agent.runs.earlier_life import EarlierLife
from tiercel.trainer_agent.runs.events import RunEvents
from tiercel.trainer_agent.runs.hand_over import HandOver, is_pending, with_pending
from tiercel.trainer_agent.runs.numbers import RunNumbers
from tiercel.trainer_agent.runs.order import RunOrder
from tiercel.trainer_agent.runs.output_mark import OutputMark
from tiercel.trainer_agent.runs.preparation import Preparation
from tiercel.trainer_agent.runs.reconciler import ActualRun, Phase
from tiercel.trainer_agent.runs.records import RunRecord
from tiercel.trainer_agent.runs.stopping import Stop, StopPatience
from tiercel.trainer_agent.runs.usage import RunUsage
from tiercel.trainer_agent.runtimes.contract import Exit, Launch, RunHandle, Runtime
from tiercel.trainer_agent.supervision import Supervisor
from tiercel.trainer_agent.trainer_socket.gateway import TrainerGateway
from tiercel.v1 import nodes_pb2, trainer_pb2

_log = logging.getLogger(__name__)

_USAGE_SECONDS: Final = 1.0
_LAST_OUTPUT_SECONDS: Final = 10.0
_LAST_REPORTS_SECONDS: Final = 2.0
# A script that prints without end is read no faster. Its minder has it wait for us; of a container's output the engine
# keeps the newest, and what it is ahead is left out.
_OUTPUT_BYTES_PER_SECOND: Final = 2.0 * 1024**2
_OUTPUT_BYTES_AT_ONCE: Final = 32.0 * 1024**2


class Run:
    """One run of a job.

    Args:
        record: What is remembered of it. It has ended where an earlier life of the agent had not sent all of its files.
        inner_socket: Folder for a socket that the job does not reach.
        earlier: What there is of it already, or None for one to be started.
    """

    def __init__(
        self,
        order: RunOrder,
        record: RunRecord,
        *,
        folder: Path,
        inner_socket: Path,
        log: RunLog,
        mark: OutputMark,
        runtime: Runtime,
        events: RunEvents,
        patience: StopPatience,
        preparation: Preparation,
        hand_over: HandOver,
        earlier: EarlierLife | None = None,
    ) -> None:
        self.order = order
        self.share = order.share
        last = None if earlier is None else earlier.last_report
        self.usage = RunUsage(order.run_id, last, is_earlier=earlier is not None)
        self.log = log
        self._mark = mark
        self._folder = JobFolder(folder)
        self._inner_socket = inner_socket
        self._runtime = runtime
        self._events = events
        self._preparation = preparation
        self._hand_over = hand_over
        self._record = record
        self.gateway = TrainerGateway(
            order.welcome(),
            order.goal(),
            self._record.token,
            self._ingest,
            self._on_begun,
            self._on_use,
            self._write_line,
            last_sequence=0 if last is None else last.sequence,
        )
        self._handle = None if earlier is None else earlier.handle
        self._data_sha256: dict[str, str] = {}
        self._exit_code: int | None = None
        self._from_beginning = self._gone = self._finishing = False
        # What its limits were set to last, an earlier life of the agent knew.
        self._share_holds = earlier is None
        # A trainer that an earlier life of the agent knew dials again within moments.
        self._expects_trainer = last is not None
        self._share_changed = asyncio.Event()
        self._stop = Stop(patience)

    @property
    def run_id(self) -> str:
        """Its id."""
        return self.order.run_id

    @property
    def folder(self) -> JobFolder:
        """The folder of its job."""
        return self._folder

    @property
    def is_running(self) -> bool:
        """Whether its processes may use what it holds: not before they are started, nor after their end."""
        return self._handle is not None and not self._gone

    def actual(self) -> ActualRun:
        """What the reconciler has to know of it."""
        phase = Phase.STOPPING if self._stop.is_asked else Phase.ALIVE
        return ActualRun(phase, self.share if self._share_holds else None, self._finishing)

    def numbers(self) -> RunNumbers:
        """What whoever watches the node is told of it."""
        alive = "running" if self._handle else "starting"
        state = "stopping" if self._stop.is_asked else alive
        return RunNumbers(self.run_id, self.order.job_id, state, self.share, self.usage.message())

    def status(self) -> nodes_pb2.RunStatus:
        """What the broker is told of it while it has not ended."""
        state = nodes_pb2.RUN_STATE_RUNNING if self._handle else nodes_pb2.RUN_STATE_STARTING
        return nodes_pb2.RunStatus(
            run_id=self.run_id,
            state=state,
            cpu_seconds=self.usage.cpu_seconds,
            accelerator_seconds=self.usage.accelerator_seconds,
            from_beginning=self._from_beginning,
            data_sha256=self._data_sha256,
            warm=self._handle is not None and self._handle.is_warm,
            begun_cpu_seconds=self.usage.begun_cpu_seconds,
            environment=self._record.environment,
            image_id=self._record.image_id,
        )

    def on_accelerator_readings(self, readings: Sequence[AcceleratorReading]) -> None:
        """The driver said what processes use of accelerators."""
        if self._handle is not None:
            self.usage.on_readings(readings, self._handle)

    def set_share(self, share: Share) -> None:
        """Let it have another share, as soon as possible."""
        self.share = share
        self._share_holds = True
        self._share_changed.set()

    @property
    def has_successor(self) -> bool:
        """Whether another run of its job will have what this one does not hand over any more."""
        code, retried = self._exit_code, self.order.retried and not self._stop.is_asked
        is_another_tried = retried and code is not None and is_retried(code, self.order.spec.retry_exit_codes)
        return self._record.lost or self._record.moved or is_another_tried

    def ask_to_stop(self, reason: str, *, lost: bool = False, moved: bool = False) -> None:
        """Begin to stop it; its end is reported like any other.

        Args:
            reason: Why, in plain words.
            lost: Whether the job is not to blame and should be started again.
            moved: Whether its job goes on as another run: its checkpoint is then sent to the broker.
        """
        if not self._stop.is_asked:
            self._record = replace(self._record, lost=lost, moved=moved)
            self._stop.ask(reason)

    def finish(self) -> None:
        """Have its training end as it would after its last epoch; its end is reported like any other."""
        self._finishing = True
        self.gateway.stop("the time that its job has is over", finish=True)

    def end(self, reason: str) -> None:
        """End it at once because of what it does; that fails its job."""
        if not self._stop.is_asked:
            self._stop.misdeed = reason
            self._write_line(f"the run is ended: {reason}")
        self.ask_to_stop(reason)

    def end_within(self, seconds: float) -> None:
        """Have it gone by then, through no fault of its job, as it may be started elsewhere; again it does nothing."""
        self._stop.hurry(seconds)
        self.ask_to_stop("the node was without its broker for so long that the job may go on elsewhere", lost=True)

    async def supervise(self) -> RunRecord:
        """Start it, see it through, and return how it ended; everything it held is free then.

        Cancelling this lets go of it: it goes on, and the agent's next life takes it over.
        """
        if self._record.ended:
            await self._let_go()
            ended = self._record
        else:
            ended = with_pending(await self._see_to_its_end(), self.order)
            if is_pending(ended):
                self._remember(ended)
        record = await self._hand_over.give(ended, self.order, self._folder, self._remember, self._write_line)
        _log.info("run %s ended: code %s%s", self.run_id, record.exit_code, f", {record.reason}" * bool(record.reason))
        self.usage.log_accelerators()
        self._remember(record)
        return record

    async def _see_to_its_end(self) -> RunRecord:
        try:
            record = await self._run()
        except asyncio.CancelledError:
            await self.gateway.close(0.0)
            raise
        except RunFailedError as error:
            record = replace(self._record, ended=True, reason=error.message, log_tail=self.log.tail())
        except OSError as error:
            reason = f"The agent cannot look after it: {error}."
            record = replace(self._record, ended=True, reason=reason, log_tail=self.log.tail())
        except Exception as error:
            # A defect in here must not take the other runs along.
            _log.exception("run %s was given up", self.run_id)
            reason = f"The agent failed to look after it: {error!r}. Please report this as a defect of Tiercel."
            record = replace(self._record, ended=True, reason=reason, log_tail=self.log.tail())
        await self._let_go()
        return record

    def _remember(self, record: RunRecord) -> None:
        """Have it kept what became of the run; where the disk does not take it, this life of the agent alone knows."""
        try:
            self._events.recorded(record)
        except OSError as error:
            _log.error("what became of run %s cannot be written down: %s", self.run_id, error)

    async def _run(self) -> RunRecord:
        if self._handle is None:
            handle = self._handle = await self._start()
            _log.info("run %s is %s", self.run_id, handle.description)
        else:
            handle = self._handle
            _log.info("run %s is taken over: %s", self.run_id, handle.description)
            await self._listen()
        self._events.changed(self.status())
        self._events.limits_changed()
        return self._ended(await self._wait_end(handle))

    async def _start(self) -> RunHandle:
        order = self.order
        check_run(order.run_id, order.job_id, order.script_name)
        self._check_wanted()  # it may have waited for long
        self._events.recorded(self._record)
        prepared = await self._prepare()
        self._data_sha256 = {each.name: each.sha256 for each in prepared.data if each.sha256}
        self._from_beginning = not await asyncio.to_thread(self._folder.has_checkpoint)
        await self._listen()
        launch = replace(prepared, share=self.share.cpu)
        handle = await self._runtime.start(launch)
        self._record = replace(self._record, environment=prepared.environment_key, image_id=handle.image_id)
        if self._record.environment or self._record.image_id:
            self._remember(self._record)
        if handle.note:
            self._write_line(handle.note)
        if self.share.cpu != launch.share:
            self._share_changed.set()
        return handle

    async def _prepare(self) -> Launch:
        try:
            return await self._preparation.prepare(
                self.order,
                self._folder,
                token=self._record.token,
                runtime=self._runtime,
                check=self._check_wanted,
                stopped=self._stop.wait_asked,
                say=self._write_line,
            )
        except TransferError as error:
            self._record = replace(self._record, lost=True)  # through no fault of the job
            raise RunFailedError(error.message) from error

    def _check_wanted(self) -> None:
        if self._stop.is_asked:
            raise RunFailedError(self._stop.reason)

    async def _listen(self) -> None:
        """Be there for its trainer."""
        try:
            self._folder.remove_socket()
            await self.gateway.open(self._folder.path, self._inner_socket)
            self._folder.give_socket(self._runtime.owner)
        except (OSError, RuntimeError) as error:
            raise RunFailedError(f"The socket for the run cannot be made: {error}.") from error

    async def _wait_end(self, handle: RunHandle) -> Exit:
        async with Supervisor() as tasks:
            output = tasks.start("output", self._keep_output(handle))
            tasks.start("socket", self.gateway.serve())
            tasks.start("usage", self._watch_usage(handle))
            tasks.start("share", self._apply_shares(handle))
            tasks.start("stop", self._stop_when_asked(handle))
            if (seconds := self.order.spec.copy_checkpoint_seconds) is not None:
                tasks.start(
                    "copies", self._hand_over.copies.keep_up(self.run_id, self._folder, seconds, self._write_line)
                )
            how = await handle.wait()
            self._exit_code = how.code
            with contextlib.suppress(TimeoutError):  # an engine may be slow to hand it out
                async with asyncio.timeout(_LAST_OUTPUT_SECONDS):
                    await asyncio.wait([output])
            await self.gateway.close(_LAST_REPORTS_SECONDS)
            await self.usage.measure(handle)
            tasks.cancel_all()
        return how

    def _ended(self, how: Exit) -> RunRecord:
        return replace(
            self._record,
            ended=True,
            exit_code=None if self._stop.misdeed else how.code,  # how a script takes its end says nothing about the job
            reason=self._stop.misdeed or how.reason or self._stop.reason,
            log_tail=self.log.tail(),
            cpu_seconds=self.usage.cpu_seconds,
            accelerator_seconds=self.usage.accelerator_seconds,
        )

    async def _let_go(self) -> None:
        await self.gateway.close(0.0)
        self._mark.close()
        if self._handle is not None:
            await self._handle.close()
            self._gone = True
            self._events.limits_changed()

    async def _keep_output(self, handle: RunHandle) -> None:
        room = TokenBucket(_OUTPUT_BYTES_PER_SECOND, _OUTPUT_BYTES_AT_ONCE, time.monotonic())
        async for chunk in handle.output(self._mark.position):
            self._mark.move(chunk.position, self.log.size + len(chunk.data))
            self.log.append(chunk.data)
            self._events.wrote()
            room.take(len(chunk.data), time.monotonic())
            await asyncio.sleep(room.seconds_until_room(time.monotonic()))

    async def _watch_usage(self, handle: RunHandle) -> None:
        while True:
            await self.usage.measure(handle)
            await asyncio.sleep(_USAGE_SECONDS)

    async def _apply_shares(self, handle: RunHandle) -> None:
        while True:
            await self._share_changed.wait()
            self._share_changed.clear()
            try:
                await handle.apply_share(self.share.cpu)
            except RunFailedError as error:
                _log.warning("run %s keeps its former share: %s", self.run_id, error.message)
            self._events.limits_changed()

    async def _stop_when_asked(self, handle: RunHandle) -> None:
        await self._stop.wait_asked()
        _log.info("run %s is being stopped: %s", self.run_id, self._stop.reason)
        if (self.gateway.is_attached or self._expects_trainer) and not self._stop.misdeed:
            self.gateway.stop(self._stop.reason)
            await self._stop.wait_for_trainer(moved=self._record.moved)  # cut short by the end of the run
        await self._stop.end(self.run_id, handle)

    async def _on_begun(self) -> None:
        if await self.usage.begin(self._handle):
            self._events.changed(self.status())

    async def _ingest(self, report: trainer_pb2.TrainerReport) -> None:
        await self._on_begun()
        await self.usage.measure_soon(self._handle)
        progress = nodes_pb2.Progress(
            run_id=self.run_id,
            sequence=report.sequence,
            epoch=report.epoch,
            metrics=report.metrics,
            cpu_seconds=self.usage.cpu_seconds,
            accelerator_seconds=self.usage.accelerator_seconds,
            ended=report.ended,
        )
        progress.at.FromNanoseconds(time.time_ns())
        self._events.progressed(progress)

    def _write_line(self, text: str) -> None:
        """Write something into the log of the run."""
        self.log.append_line(f"[tiercel: {text}]")
        self._events.wrote()

    def _on_use(self, use: trainer_pb2.AcceleratorUse) -> None:
        self.usage.on_report(use)
        self._events.used(self.run_id, self.usage.accelerator_seconds)
