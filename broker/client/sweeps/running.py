"""Runs a sweep: trials as jobs, looked at until they are over, and the best one's parameters to the endpoint."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tiercel.broker.client.sweeps.ranges import arguments_of
from tiercel.broker.client.sweeps.stopping import Halving, Learned, trials_to_stop
from tiercel.core.errors import EndpointBusyError, NotFoundError, QuotaExceededError, TiercelError, wrong_field
from tiercel.core.jobs import JobSpec, JobState
from tiercel.core.jsonable import Jsonable
from tiercel.core.views import JobInfo, ProgressEvent

if TYPE_CHECKING:
    from tiercel.broker.client.client import Client
    from tiercel.broker.client.projects.packing import PackedProject
    from tiercel.broker.client.sweeps.study import Asked, Study

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,54}")
LABEL = "sweep"
PAUSE_SECONDS = 1.0
FAILURES_IN_VAIN = 3
CANCEL_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """How a sweep is run."""

    name: str  # the study's
    trials: int  # how many there are in all, those of earlier lives of the sweep among them; 1 to 1,000
    at_once: int  # how many train at the same time, 1 to 32
    halving: Halving  # how trials are stopped early
    leave: bool = False  # let jobs go on where the sweep is broken off

    def __post_init__(self) -> None:
        """Check the name, which is that of a file and the beginning of endpoints' names.

        Raises:
            InvalidSpecError: It is fit for neither.
        """
        if not _NAME.fullmatch(self.name):
            raise wrong_field(
                "study", f"{self.name[:100]!r} is no name; use 1 to 55 of a-z, 0-9, '.', '_' and '-', not '.' first"
            )


@dataclass(frozen=True, slots=True)
class TrialEnd(Jsonable):
    """What became of a trial."""

    number: int  # from 0
    job_id: str  # its job
    parameters: dict[str, float | int | str]  # by name
    state: str  # ``completed``, ``stopped`` or ``failed``
    value: float | None  # its best value, or None
    epoch: int  # the last one that it reported
    reason: str = ""  # why it was stopped or failed; else empty


@dataclass(slots=True)
class _Running:
    """A trial whose job is looked at; ``last`` is the number of the last event that was read."""

    asked: Asked
    job_id: str
    learned: Learned = field(default_factory=Learned)
    last: int = 0
    why_stopped: str = ""


class SweepInVainError(TiercelError):
    """The first trials of a sweep all failed."""


class Sweep:
    """A sweep of one study.

    Args:
        client: Of the tenant.
        spec: What all trials have in common.
        plan: How many, and how they are stopped.
        study: Says what to try.
        show: Is told what became of each trial.
        pause_seconds: How long to wait before the broker is asked again.
    """

    def __init__(
        self,
        client: Client,
        spec: JobSpec,
        plan: SweepPlan,
        study: Study,
        show: Callable[[TrialEnd], None],
        *,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._pause_seconds = pause_seconds
        self._client = client
        self._spec = spec
        self._plan = plan
        self._study = study
        self._show = show
        self._packed: PackedProject | None = None
        self._running: dict[int, _Running] = {}
        self._learned: dict[int, Learned] = {}
        self._failures = 0
        self._works = False
        self._submitting: Asked | None = None
        self._waiting: list[Asked] = []

    async def run(self) -> None:
        """Try until there are as many trials as were asked for.

        Cancelled, or when the first trials all failed, it cancels the jobs that run, unless they are to be left.

        Raises:
            TiercelError: The broker takes no trial, or the first ones all fail; beginning again goes on from there.
        """
        self._packed = await self._client.pack(self._spec)
        await self._remember()
        self._waiting = self._study.unfinished()
        try:
            while await self._begin():
                await asyncio.sleep(self._pause_seconds)
                await self._look()
        except (asyncio.CancelledError, SweepInVainError):
            if not self._plan.leave:
                await self._cancel_all()
            raise

    async def _remember(self) -> None:
        """Read what trials of earlier lives had reported, with which others are compared."""
        for asked in self._study.finished():
            trial = _Running(asked, asked.job_id)
            with suppress(NotFoundError):  # not kept any more
                await self._read(trial, await self._client.get_job(trial.job_id))
                trial.learned.over = True
                self._learned[asked.number] = trial.learned

    async def feed(self) -> JobInfo | None:
        """Train once more with the best parameters, for the spec's own endpoint; None where no trial was completed."""
        best = self._study.best()
        if best is None:
            return None
        spec = replace(self._with(dict(best.params)), queue=True)
        handle = await self._client.submit(
            spec, idempotency_key=f"{self._study.id}-best-{best.number}", packed=self._packed
        )
        return await handle.refresh()

    async def _begin(self) -> bool:
        """Start trials as far as there is room; returns whether any runs."""
        while len(self._running) < self._plan.at_once:
            if not self._waiting and self._study.count() >= self._plan.trials:
                break
            asked = self._waiting.pop(0) if self._waiting else self._study.ask()
            try:
                job_id = asked.job_id or await self._submit(asked)
            except QuotaExceededError:
                self._submitting = None
                self._waiting.insert(0, asked)
                if not self._running:
                    raise
                break
            self._running[asked.number] = _Running(asked, job_id)
        return bool(self._running)

    async def _submit(self, asked: Asked) -> str:
        # The key makes it one job, though the sweep ends before it has kept the job's id.
        self._submitting = asked
        key = f"{self._study.id}-{asked.number}"
        handle = await self._client.submit(self._of_trial(asked), idempotency_key=key, packed=self._packed)
        self._study.keep_job(asked.number, handle.id)
        self._submitting = None
        return handle.id

    def _of_trial(self, asked: Asked) -> JobSpec:
        """The spec of a trial, which feeds an endpoint of its own: one endpoint takes one job at a time."""
        name = f"{self._plan.name}-t{asked.number}"
        return replace(
            self._with(asked.parameters),
            name=name,
            endpoint=name,
            variant="",
            replicas=1,
            access=None,
            endpoint_objective_seconds=None,
            every_seconds=None,
            queue=False,
        )

    def _with(self, parameters: dict[str, float | int | str]) -> JobSpec:
        words = arguments_of(parameters)
        spec = replace(self._spec, labels={**self._spec.labels, LABEL: self._plan.name})
        if spec.command:
            return replace(spec, command=(*spec.command, *words))
        return replace(spec, arguments=(*spec.arguments, *words))

    async def _look(self) -> None:
        """Read what was reported, tell what is over, and stop what is not worth it."""
        for number, trial in list(self._running.items()):
            try:
                # Asked before its events: once a job is over, all there is to tell is kept.
                job = await self._client.get_job(trial.job_id)
                await self._read(trial, job)
            except NotFoundError:
                self._learned.pop(number, None)
                await self._over(trial, None)
                continue
            self._learned[number] = trial.learned
            if job.state.is_final:
                await self._over(trial, job)
        for number, reason in trials_to_stop(self._learned, self._spec.direction, self._plan.halving).items():
            trial = self._running[number]
            if not trial.why_stopped:
                trial.why_stopped = reason
                await self._client.cancel_job(trial.job_id)

    async def _read(self, trial: _Running, job: JobInfo) -> None:
        """Take in what was reported since; a job that tells of no other epoch is not asked for more."""
        learned = trial.learned
        learned.tiers, learned.over = job.tiers, job.state.is_final
        if job.epoch == learned.epoch:
            return
        async with aclosing(self._client.events(job_id=trial.job_id, after=trial.last, follow=False)) as events:
            async for event in events:
                trial.last = event.sequence
                if isinstance(event, ProgressEvent) and math.isfinite(event.value):
                    learned.add(event.epoch, event.value, self._spec.direction, self._plan.halving)

    async def _over(self, trial: _Running, job: JobInfo | None) -> None:
        """Tell the study, and remove what the trial left at its endpoint."""
        del self._running[trial.asked.number]
        end = _end_of(trial, job)
        if end.state == "completed" and end.value is not None:
            self._study.completed(end.number, end.value)
        elif end.state == "stopped" and end.value is not None:
            self._study.stopped(end.number, end.epoch, end.value, end.reason)
        else:
            self._study.failed(end.number, end.reason)
        await self._delete_endpoint(end.number)
        self._show(end)
        self._failures += end.state == "failed"
        self._works |= end.state != "failed"
        if self._failures >= FAILURES_IN_VAIN and not self._works:
            raise SweepInVainError(
                f"The first {self._failures} trials all failed, the last with: {end.reason}. "
                f"See 'tiercel logs {end.job_id}', mend it and begin the sweep again."
            )

    async def _cancel_all(self) -> None:
        """Cancel what runs, and remove what it left at its endpoints as far as it ends in time."""
        with suppress(TimeoutError, TiercelError):
            async with asyncio.timeout(CANCEL_SECONDS):
                if self._submitting is not None:  # its job may be there already
                    asked = self._submitting
                    self._running[asked.number] = _Running(asked, await self._submit(asked))
                for trial in self._running.values():
                    with suppress(NotFoundError):
                        await self._client.cancel_job(trial.job_id)
                    self._study.interrupted(trial.asked.number)
                for trial in self._running.values():
                    await self._client.job(trial.job_id).wait()
                    await self._delete_endpoint(trial.asked.number)

    async def _delete_endpoint(self, number: int) -> None:
        with suppress(NotFoundError, EndpointBusyError):  # nothing was delivered, or somebody trains it again
            await self._client.delete_endpoint(f"{self._plan.name}-t{number}")


def _end_of(trial: _Running, job: JobInfo | None) -> TrialEnd:
    asked = trial.asked
    if job is None:
        reason = "its job is not kept any more"
        return TrialEnd(asked.number, trial.job_id, asked.parameters, "failed", None, 0, reason)
    value = job.best_value if job.best_value is not None and math.isfinite(job.best_value) else None
    state, reason = "failed", job.reason or "it reported no value"
    if value is not None and job.state in {JobState.COMPLETED, JobState.MISSED}:
        state, reason = "completed", ""
    elif value is not None and trial.why_stopped:
        state, reason = "stopped", trial.why_stopped
    return TrialEnd(asked.number, trial.job_id, asked.parameters, state, value, job.epoch, reason)
