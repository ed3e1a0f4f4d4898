"""The actor of one job."""

from __future__ import annotations

import math
import secrets
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tiercel.broker.actors.clock import moment_of
from tiercel.broker.actors.input_history import InputHistory
from tiercel.broker.actors.journal import Commit
from tiercel.broker.actors.mailbox import Actor
from tiercel.broker.actors.peers import WantedRun
from tiercel.broker.lifecycle import machine, series
from tiercel.broker.lifecycle.job_events import (
    AbandonDelivery,
    Announce,
    CancelRequested,
    DeclareRun,
    Deferred,
    DropCheckpoint,
    JobEffect,
    JobInput,
    PrioritySet,
    RefuseMove,
    Reported,
    RequestDelivery,
    Reschedule,
    ResumeRequested,
    ShareUpdated,
    SuspendRequested,
    Ticked,
    TierFeasibilityChanged,
    UsageMeasured,
    WithdrawRun,
)
from tiercel.broker.lifecycle.report_bounds import ReportAllowance
from tiercel.broker.lifecycle.steps import delivering
from tiercel.broker.scheduling.history import RunCurve
from tiercel.broker.scheduling.views import JobFacts, job_view, leaving_of
from tiercel.core.errors import IllegalTransitionError
from tiercel.core.events import ProgressMade
from tiercel.core.jobs import Job, JobState, Observation, TierState
from tiercel.core.run_records import RunRecord, similar_to, workload_of
from tiercel.core.tenants import DEFAULT_WEIGHT, NO_CLASS, PriorityClass

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.journal import Journal
    from tiercel.broker.actors.peers import Peers
    from tiercel.broker.scheduling.interface import JobView
    from tiercel.core.endpoints import Endpoint
    from tiercel.core.events import JobEvent

# Reports that a policy sees of a job.
MAX_OBSERVATIONS = 500

_ASKED_FOR = (CancelRequested, ResumeRequested, SuspendRequested, PrioritySet)
# Inputs that come all the time, and seldom lead anywhere.
_ROUTINE = (Reported, UsageMeasured, ShareUpdated, Deferred, TierFeasibilityChanged, Ticked)


@dataclass(slots=True)
class _Step:
    """What messages lead to."""

    job: Job  # afterwards
    taken: int = 0  # messages
    effects: list[JobEffect] = field(default_factory=list)
    observed: list[Observation] = field(default_factory=list)
    notes: list[tuple[JobInput, JobState, JobState]] = field(default_factory=list)  # for the history
    is_worth_writing: bool = False


class JobActor(Actor[JobInput]):
    """Owns one job: runs its machine, makes each step durable, then carries out the effects.

    Args:
        observations: Earlier reports, oldest first.
        tenant_weight: What its tenant's jobs are worth among those of others, > 0.
        priority_class: The class that its spec names.
    """

    def __init__(
        self,
        job: Job,
        journal: Journal,
        clock: Clock,
        peers: Peers,
        observations: Iterable[Observation] = (),
        *,
        tenant_weight: float = DEFAULT_WEIGHT,
        priority_class: PriorityClass = NO_CLASS,
    ) -> None:
        super().__init__(f"job {job.id}")
        self._job = job
        self._journal = journal
        self._clock = clock
        self._peers = peers
        self._observations: deque[Observation] = deque(observations, MAX_OBSERVATIONS)
        self._curve = RunCurve(job.spec.direction, self._observations)
        self._allowance = ReportAllowance(clock.alive())
        self._tenant_weight = tenant_weight
        self._priority_class = priority_class
        self._counted = (job.cpu_seconds, job.accelerator_seconds)  # of what it has used, for its tenant
        self._workload = workload_of(job.tenant, job.spec)
        self._similar = similar_to(job.tenant, job.spec)
        self._history = InputHistory()

    @property
    def job(self) -> Job:
        """The job as it is now."""
        return self._job

    async def receive(self, message: JobInput) -> None:
        """Take one step of the job's life.

        Raises:
            IllegalTransitionError: Its state has no edge for that; tells the inputs that led there.
        """
        await self.receive_all((message,))

    def goes_with(self, message: JobInput, following: JobInput) -> bool:
        """Reports of one run: each by itself would wait for the disk, and a job that talks fall ever further behind."""
        return isinstance(message, Reported) and isinstance(following, Reported) and message.run_id == following.run_id

    async def receive_all(self, messages: Sequence[JobInput]) -> None:
        """Take one step of the job's life; of several reports one for as many as nothing follows from.

        Raises:
            IllegalTransitionError: Its state has no edge for that; tells the inputs that led there.
        """
        step = self._led_to(messages)
        if step.is_worth_writing:
            # What is asked for from outside is refused while nothing can be written; what happened waits until it can.
            refusable = isinstance(messages[0], _ASKED_FOR)
            await self.take_step(step.job, step.effects, step.observed, refusable=refusable)
        elif step.job is not self._job:
            self._job = step.job
            self._observe()
        for note in step.notes:
            self._history.add(self._clock.now(), *note)
        if step.taken < len(messages):
            await self.receive_all(messages[step.taken :])

    async def resume(self) -> None:
        """Continue a job that was loaded from the store.

        Raises:
            CannotWriteError: The store takes nothing now.
        """
        before = self._job
        await self.take_step(*machine.after_restart(before), refusable=True)
        self._peers.remember_starts(self._workload, self._job)
        self._history.add(self._clock.now(), "the broker was started again", before.state, self._job.state)

    async def begin(self, job: Job, effects: Sequence[JobEffect], endpoint: Endpoint | None) -> None:
        """Take the first step of a job, which makes its endpoint with it where there is none.

        Raises:
            CannotWriteError: The store takes nothing now; there is no such job.
        """
        await self.take_step(job, effects, endpoint=endpoint, refusable=True)

    async def take_step(
        self,
        job: Job,
        effects: Sequence[JobEffect],
        observed: Sequence[Observation] = (),
        *,
        endpoint: Endpoint | None = None,
        refusable: bool,
    ) -> None:
        """Make a step durable, then carry out what follows from it.

        Args:
            job: The job after the step.
            effects: What follows.
            observed: What the step has learnt of the metric, oldest first.
            endpoint: An endpoint that is made with it, or None.
            refusable: Whether it is not taken at all while the store takes nothing; else it waits.
        """
        changes = [effect.change for effect in effects if isinstance(effect, Announce)]
        record = self._record(job, observed)
        successor = series.next_of(self._job, job, secrets.token_hex(4), moment_of(self._clock))
        if job is not self._job or changes:
            await self._write(
                Commit(job, changes, endpoint, successor=successor, run_record=record), job, refusable=refusable
            )
        before, self._job = self._job, job
        for observation in observed:
            self._observations.append(observation)
            self._curve.add(observation)
        if record is not None:
            self._peers.remember_run(record)
        if job.starts != before.starts:
            self._peers.remember_starts(self._workload, job)
        # The scheduler must see the job as it is after this step before it is asked to look.
        self._observe()
        for effect in effects:
            self._carry_out(effect)
        if job.state.is_final:
            self._peers.drop_checkpoint(job.id)
        if successor is not None:
            self._peers.begin_job(successor)
        if is_over(job):
            self._peers.retire_job(job.id)

    async def _write(self, commit: Commit, job: Job, *, refusable: bool) -> None:
        """Make a step durable, and with it what the job has used since the one before, for its tenant."""
        write = self._journal.commit_or_refuse if refusable else self._journal.commit
        counted = (job.cpu_seconds, job.accelerator_seconds)
        more = [max(0.0, now - before) for now, before in zip(counted, self._counted, strict=True)]
        if not any(more):
            await write(commit)
            return
        use = self._peers.count_use(job.tenant, *more)
        try:
            await write(replace(commit, use=use))
        except BaseException:
            self._peers.count_use(job.tenant, *(-each for each in more))
            raise
        self._counted = counted

    def _led_to(self, messages: Sequence[JobInput]) -> _Step:
        """What messages lead to, up to the first from which more follows than news."""
        step = _Step(self._job)
        for message in messages:
            before, step.taken = step.job, step.taken + 1
            try:
                step.job, effects = machine.handle(before, message, moment_of(self._clock))
            except IllegalTransitionError as error:
                error.history = self._history.lines()
                raise
            # What comes every few seconds, or much too often, is not worth a transaction.
            is_nothing = step.job is before and not effects
            if is_nothing or isinstance(message, UsageMeasured) or self._is_one_too_many(effects):
                continue
            step.is_worth_writing = True
            step.effects += effects
            step.observed += _observed(before, step.job, message, self._clock.now())
            if step.job.state is not before.state or not isinstance(message, _ROUTINE):
                step.notes.append((message, before.state, step.job.state))
            if not all(isinstance(each, Announce | Reschedule) for each in effects):
                break  # what follows, such as a version's lineage, is about the job as it is then
        return step

    def _is_one_too_many(self, effects: Sequence[JobEffect]) -> bool:
        """Whether a report says nothing but where the metric is, and there were too many of these."""
        made = [each.change for each in effects if isinstance(each, Announce) and isinstance(each.change, ProgressMade)]
        if not made:
            return False
        if not self._allowance.has_room(self._clock.alive()) and len(effects) == 1:
            return True
        self._allowance.take(made[0].metrics)
        return False

    def _record(self, job: Job, observed: Sequence[Observation]) -> RunRecord | None:
        """What is worth remembering of the job once it is over, and before that once it has reached its last tier."""
        before = self._job
        ended = job.state.is_final and not before.state.is_final
        if not ended and (_is_topped(before) or not _is_topped(job)):
            return None
        if not (points := self._curve.after(observed).points()):
            return None
        return RunRecord(job.id, self._workload, self._clock.now(), points, job.starts, self._similar)

    def _carry_out(self, effect: JobEffect) -> None:
        match effect:
            case RequestDelivery(tier):
                self._peers.request_delivery(self._job, tier)
            case AbandonDelivery(tier, reason):
                self._peers.abandon_delivery(self._job, tier, reason)
            case DeclareRun():
                self._peers.declare_run(WantedRun(self._job))
            case WithdrawRun(node_id, run_id):
                self._peers.withdraw_run(node_id, run_id)
            case RefuseMove():
                self._peers.refuse_move(self._job.id)
            case DropCheckpoint():
                self._peers.drop_checkpoint(self._job.id)
            case Reschedule(trigger):
                self._peers.reschedule(trigger)
            case Announce():
                pass  # the journal has announced it

    def _observe(self) -> None:
        job, leaving = self._job, leaving_of(self._job)
        if leaving is None:
            self._peers.observe_job(job.id, self._view(), job.attempts)
            return
        self._peers.observe_job(
            job.id, self._view(), job.attempts, leaving=leaving.node_id, leaving_accelerators=leaving.accelerators
        )

    def _view(self) -> JobView | None:
        job = self._job
        if not job.concerns_scheduler:
            return None
        facts = JobFacts(
            self._workload,
            self._similar,
            self._tenant_weight,
            tuple(self._observations),
            job.cpu_seconds,
            job.accelerator_seconds,
            priority_class=self._priority_class,
        )
        return job_view(job, facts)


def is_over(job: Job) -> bool:
    """Whether nothing can happen to the job any more: final, and no delivery under way."""
    return job.state.is_final and not delivering(job)


def _is_topped(job: Job) -> bool:
    return all(tier.state in {TierState.REACHED, TierState.DELIVERED} for tier in job.tiers)


def observations_of(progress: Iterable[JobEvent]) -> list[Observation]:
    """What a policy may see of a job's stored progress."""
    return [
        Observation(
            event.at,
            event.change.epoch,
            event.change.value,
            event.change.cpu_seconds,
            event.change.accelerator_seconds,
        )
        for event in progress
        if isinstance(event.change, ProgressMade)
    ]


def _observed(before: Job, after: Job, message: JobInput, now: float) -> list[Observation]:
    """What an input tells of the metric, if anything."""
    if not isinstance(message, Reported) or message.ended or after.last_sequence == before.last_sequence:
        return []
    value = message.metrics.get(after.spec.metric)
    if value is None or not math.isfinite(value):
        return []
    return [Observation(min(message.at, now), message.epoch, value, after.cpu_seconds, after.accelerator_seconds)]
