"""All runs of the node: those that live, and those that have ended but that the broker has not let go of."""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from tiercel.trainer_agent.accelerators.contract import AcceleratorReading
from tiercel.trainer_agent.disk.job_retention import EndedJobs
from tiercel.trainer_agent.disk.watch import JobFolders
from tiercel.trainer_agent.errors import RunFailedError
from tiercel.trainer_agent.limits.accelerator_paces import AcceleratorPaces
from tiercel.trainer_agent.limits.contract import Limits, Share
from tiercel.trainer_agent.reports.kept import KeptReports
from tiercel.trainer_agent.reports.run_log import RunLog
from tiercel.trainer_agent.reports.sieve import Goal
from tiercel.trainer_agent.runs.earlier_life import EarlierLife
from tiercel.trainer_agent.runs.events import RunEvents
from tiercel.trainer_agent.runs.files import RunFiles, RunPlaces
from tiercel.trainer_agent.runs.hand_over import HandOver, is_pending
from tiercel.trainer_agent.runs.numbers import RunNumbers, RunTotals, outcome_of
from tiercel.trainer_agent.runs.order import RunOrder
from tiercel.trainer_agent.runs.preparation import Preparation
from tiercel.trainer_agent.runs.reconciler import ActualRun, Phase
from tiercel.trainer_agent.runs.records import RunRecord, RunRecords
from tiercel.trainer_agent.runs.run import Run
from tiercel.trainer_agent.runs.stopping import StopPatience
from tiercel.trainer_agent.runtimes.contract import Runtime
from tiercel.trainer_agent.supervision import Signal, Supervisor
from tiercel.v1 import nodes_pb2

_log = logging.getLogger(__name__)

_NO_GOAL: Final = Goal("", smaller_is_better=False, targets=())

# How often runs that share an accelerator are paced anew; each says once a second what it used.
_REPACE_SECONDS: Final = 0.9


class RunReporter(Protocol):
    """Who brings news about runs to the broker. None of it may block."""

    def run_changed(self, status: nodes_pb2.RunStatus) -> None:
        """A run began to exist, or has ended."""

    def progress_made(self, run_id: str) -> None:
        """A run's script reported, and the report is kept."""

    def output_grew(self) -> None:
        """Some run wrote output."""


class RunTable:
    """Owns the node's runs.

    Args:
        runtimes: By name, the preferred first.
        ended_jobs: Is told which jobs are over for good.

    Attributes:
        changed: Fired when a run begins, reports or ends.
    """

    def __init__(
        self,
        places: RunPlaces,
        runtimes: Mapping[str, Runtime],
        limits: Limits,
        reporter: RunReporter,
        tasks: Supervisor,
        patience: StopPatience,
        preparation: Preparation,
        hand_over: HandOver,
        ended_jobs: EndedJobs,
    ) -> None:
        self._places = places
        self._runtimes = runtimes
        self._limits = limits
        self._reporter = reporter
        self._tasks = tasks
        self._patience = patience
        self._preparation = preparation
        self._hand_over = hand_over
        self._records = RunRecords(places.records)
        self._live: dict[str, Run] = {}
        self._ended: dict[str, RunRecord] = {}
        self._files = RunFiles(places)
        self._with_successor: set[str] = set()
        self._ended_jobs = ended_jobs
        # Runs whose jobs may go on elsewhere, and those that ended for good while this agent looked on.
        self._may_go_on: set[str] = set()
        self._over: set[str] = set()
        self._accelerator_paces = AcceleratorPaces()
        self._paced_at = 0.0
        self._totals = RunTotals()
        self.changed = Signal()
        self._events = RunEvents(
            changed=reporter.run_changed,
            recorded=self._records.save,
            progressed=self._keep_progress,
            used=self._note_use,
            wrote=reporter.output_grew,
            limits_changed=self._push_paces,
        )

    async def take_over(self) -> None:
        """Go on with what an earlier life of the agent left behind, and remember how all that is over ended.

        Raises:
            SetupError: Something that nobody goes on with cannot be ended.
        """
        self._hand_over.clear()
        shutil.rmtree(self._places.sockets, ignore_errors=True)
        for record in self._records.load():
            order = _order_of(record)
            self._files.open(record.run_id, order.goal() if order is not None else _NO_GOAL)
            run = None if order is None else await self._taken_over(record, order)
            if run is not None:
                self._live[record.run_id] = run
                continue
            ended = record
            if not record.ended:
                ended = replace(record, ended=True, lost=True, reason="it was gone when its agent came back")
                _log.warning("run %s was lost: it is gone", record.run_id)
                self._records.save(ended)
            self._ended[record.run_id] = ended
            self._note_successor(ended.job_id, expected=ended.lost or ended.moved)
        for runtime in self._runtimes.values():
            await runtime.remove_leftovers(self._live.keys())
        await asyncio.to_thread(self._preparation.scratch.remove_others, self._live.keys())
        for run in self._live.values():
            self._tasks.start(f"run {run.run_id}", self._supervise(run))

    async def _taken_over(self, record: RunRecord, order: RunOrder) -> Run | None:
        """A run that an earlier life of the agent was not done with, as far as something can be done."""
        runtime = self._runtimes.get(record.runtime)
        if runtime is None:
            return None
        if record.ended:
            return self._run(order, runtime, record) if is_pending(record) else None
        try:
            handle = await runtime.adopt(order.launch(self._places.job(record.job_id)))
        except (RunFailedError, ValueError) as error:
            _log.error("run %s cannot be taken over: %s", record.run_id, error)
            return None
        if handle is None:
            return None
        self._preparation.data.hold(record.run_id, order.spec.data)
        reports = list(self._files.reports(record.run_id) or ())
        return self._run(order, runtime, record, EarlierLife(handle, reports[-1] if reports else None))

    def _run(self, order: RunOrder, runtime: Runtime, record: RunRecord, earlier: EarlierLife | None = None) -> Run:
        log, mark = self._files.open_output(order.run_id)
        return Run(
            order,
            record,
            folder=self._places.job(order.job_id),
            inner_socket=self._places.socket(order.run_id),
            log=log,
            mark=mark,
            runtime=runtime,
            events=self._events,
            patience=self._patience,
            preparation=self._preparation,
            hand_over=self._hand_over,
            earlier=earlier,
        )

    def actual(self) -> dict[str, ActualRun]:
        """What the reconciler has to know."""
        ended = {run_id: ActualRun(Phase.ENDED, share=None) for run_id in self._ended}
        return ended | {run_id: run.actual() for run_id, run in self._live.items()}

    def statuses(self) -> list[nodes_pb2.RunStatus]:
        """Everything about runs that a newly connected broker has to know."""
        return self.ended() + [run.status() for run in self._live.values()]

    def ended(self) -> list[nodes_pb2.RunStatus]:
        """How the runs ended whose end the broker has not confirmed."""
        return [record.status() for record in self._ended.values()]

    def usages(self) -> list[nodes_pb2.RunUsage]:
        """What the living runs have used, as last measured."""
        return [run.usage.message() for run in self._live.values()]

    def numbers(self) -> list[RunNumbers]:
        """What whoever watches the node is told of the living runs."""
        return [run.numbers() for run in self._live.values()]

    def totals(self) -> RunTotals:
        """What was counted of runs over the agent's life."""
        totals = self._totals
        for run in self._live.values():
            totals = totals.plus_reports(*run.gateway.report_counts)
        return totals

    def on_accelerator_readings(self, readings: Sequence[AcceleratorReading]) -> None:
        """Take in what the driver says of the living runs' processes."""
        for run in self._live.values():
            run.on_accelerator_readings(readings)

    def log(self, run_id: str) -> RunLog | None:
        """The output of a run; None for a run that nobody knows, or that has none."""
        return self._files.log(run_id)

    def reports(self, run_id: str) -> KeptReports | None:
        """What the script of a run has reported, within bounds; None for a run that nobody knows."""
        return self._files.reports(run_id)

    def live(self, run_id: str) -> Run | None:
        """A run that has not ended, or None."""
        return self._live.get(run_id)

    def awaits_successor(self, job_id: str) -> bool:
        """Whether the last run of a job was lost, moved or is retried, so that the broker will start another."""
        return job_id in self._with_successor

    def live_run_of_job(self, job_id: str) -> Run | None:
        """The run of a job that has not ended, the oldest of several, or None."""
        return next((run for run in self._live.values() if run.order.job_id == job_id), None)

    def folders(self) -> dict[str, JobFolders]:
        """The folders of the jobs that have a run, by job."""
        scratch = self._preparation.scratch
        return {
            run.order.job_id: JobFolders(
                run.folder.path, scratch.path(run.run_id), run.order.spec.resources.scratch_bytes
            )
            for run in self._live.values()
        }

    def end_job(self, job_id: str, reason: str) -> None:
        """End the run of a job because of what it does."""
        run = self.live_run_of_job(job_id)
        if run is not None:
            run.end(reason)

    def start(self, order: RunOrder) -> None:
        """Begin to start a run; how that goes is reported."""
        try:
            runtime = self._choose(order.spec.runtime)
        except RunFailedError as error:
            self.refuse(order.run_id, order.job_id, error.message, order.spec.runtime)
            return
        try:
            self._ended_jobs.note_begun(order.job_id)
            self._files.open(order.run_id, order.goal())
            record = RunRecord(order.run_id, order.job_id, runtime.name, order.to_json(), secrets.token_urlsafe(32))
            run = self._run(order, runtime, record)
        except OSError as error:
            reason = f"The files for what it writes and reports cannot be made: {error}."
            self.refuse(order.run_id, order.job_id, reason, runtime.name)
            return
        self._live[order.run_id] = run
        self._reporter.run_changed(run.status())
        self.changed.fire()
        self._tasks.start(f"run {order.run_id}", self._supervise(run))

    def refuse(self, run_id: str, job_id: str, reason: str, runtime: str = "") -> None:
        """Report that a run cannot be started here."""
        self._totals.ended["failed"] += 1
        self._enter_ended(RunRecord(run_id, job_id, runtime, ended=True, reason=reason))

    def stop(self, run_id: str, reason: str, *, moved: bool = False, may_go_on: bool = False) -> None:
        """Begin to stop a run; ``moved``: its job goes on as another run; ``may_go_on``: nobody here can tell."""
        if may_go_on:
            self._may_go_on.add(run_id)
        self._live[run_id].ask_to_stop(reason, moved=moved)

    def finish(self, run_id: str) -> None:
        """Have the training of a run end as it would after its last epoch."""
        self._live[run_id].finish()

    def set_share(self, run_id: str, share: Share) -> None:
        """Let a run have another share."""
        self._live[run_id].set_share(share)

    def report(self, run_id: str) -> None:
        """Say again how a run ended."""
        self._reporter.run_changed(self._ended[run_id].status())

    def disown(self, run_id: str) -> None:
        """Say that a run does not exist here."""
        reason = "the node does not know this run"
        self._reporter.run_changed(RunRecord(run_id, "", "", ended=True, lost=True, reason=reason).status())

    def forget(self, run_id: str, *, confirmed: bool) -> None:
        """Drop what is kept of a run that has ended; ``confirmed``: the broker took its end for its job's."""
        record = self._ended.pop(run_id, None)
        if confirmed and record is not None and run_id in self._over:
            self._ended_jobs.note_ended(record.job_id)
        self._over.discard(run_id)
        self._may_go_on.discard(run_id)
        self._files.remove(run_id)
        self._records.remove(run_id)

    def stop_all(self, reason: str) -> None:
        """Begin to stop every run, through no fault of its job."""
        for run in self._live.values():
            run.ask_to_stop(reason, lost=True)

    def end_all_within(self, seconds: float) -> None:
        """Have no run live by then: their jobs may go on elsewhere; said again it changes nothing."""
        for run in self._live.values():
            run.end_within(seconds)

    async def wait_all_ended(self) -> None:
        """Wait until no run lives."""
        while self._live:
            await self.changed.wait()

    def _choose(self, wanted: str) -> Runtime:
        if not wanted:
            return next(iter(self._runtimes.values()))
        if wanted not in self._runtimes:
            offered = ", ".join(self._runtimes)
            raise RunFailedError(
                f"This node does not offer the runtime {wanted!r}, only {offered}: leave the job's runtime empty, or "
                "start the agent with it in --runtimes."
            )
        return self._runtimes[wanted]

    async def _supervise(self, run: Run) -> None:
        await self._wait_turn(run)
        record = await run.supervise()
        await asyncio.to_thread(self._preparation.scratch.remove, run.run_id)
        await asyncio.to_thread(self._preparation.data.release, run.run_id)
        del self._live[run.run_id]
        self._totals = self._totals.plus_reports(*run.gateway.report_counts)
        self._totals.ended[outcome_of(record, was_asked=run.actual().phase is Phase.STOPPING)] += 1
        self._note_successor(record.job_id, expected=run.has_successor)
        if not (record.lost or record.moved or run.run_id in self._may_go_on):
            self._over.add(run.run_id)
        self._enter_ended(record)

    async def _wait_turn(self, run: Run) -> None:
        """Wait until no earlier run of its job lives here, as one that the broker gave up may: they share a folder."""
        while self.live_run_of_job(run.order.job_id) is not run:
            await self.changed.wait()

    def _enter_ended(self, record: RunRecord) -> None:
        self._ended[record.run_id] = record
        self._reporter.run_changed(record.status())
        self.changed.fire()

    def _note_successor(self, job_id: str, *, expected: bool) -> None:
        if expected:
            self._with_successor.add(job_id)
        else:
            self._with_successor.discard(job_id)

    def _keep_progress(self, progress: nodes_pb2.Progress) -> None:
        self._files.add_report(progress)
        self._reporter.progress_made(progress.run_id)
        self.changed.fire()

    def _note_use(self, run_id: str, accelerator_seconds: float) -> None:
        """A run used accelerators; who shares one with it may be lent more, or less, from now on."""
        now = time.monotonic()
        self._accelerator_paces.note(run_id, now, accelerator_seconds)
        if now - self._paced_at >= _REPACE_SECONDS:
            self._push_paces()

    def _push_paces(self) -> None:
        self._paced_at = time.monotonic()
        cores = self._limits.paces()
        running = [run for run in self._live.values() if run.is_running]
        accelerators = self._accelerator_paces.paces({run.run_id: run.share.accelerators for run in running})
        for run_id, run in self._live.items():
            run.gateway.pace(cores.get(run_id, 0.0), accelerators.get(run_id, 0.0))


def _order_of(record: RunRecord) -> RunOrder | None:
    """What was asked for, as far as it was written down."""
    if not record.order:
        return None
    try:
        return RunOrder.from_json(record.run_id, record.job_id, record.order)
    except ValueError as error:
        _log.error("run %s cannot be taken over: %s", record.run_id, error)
        return None
