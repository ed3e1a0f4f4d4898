"""Trials from their beginning to what becomes of them: what waits, watches, and changes what is live."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tiercel.core.errors import ArtefactRefusedError, UnavailableError
from tiercel.serving.canary_plan import CanaryPlan
from tiercel.serving.models.canary.judgement import Outcome
from tiercel.serving.models.canary.trials import NO_PROGRESS, Progress, Trial
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.registry import ModelRecord, VersionState

if TYPE_CHECKING:
    from collections.abc import Iterable

from tiercel.serving.tasks import StartTask

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CarriedTrial:
    """A trial that another process goes on with."""

    version: int  # the new version
    plan: CanaryPlan  # how it is tried
    progress: Progress  # how far it is


class Stage(Protocol):
    """Whoever brings versions up and down, as trials need it."""

    def lock_of(self, model: str) -> asyncio.Lock:
        """Held while something changes about a model."""

    def flip(self, record: ModelRecord, new: LoadedVersion) -> None:
        """Let a version answer everything."""

    def release(self, old: LoadedVersion, record: ModelRecord, reason: str) -> None:
        """Let go of a version that gets no more requests, once the last one is answered."""

    async def noted(self, model: str, version: int, outcome: Outcome, reason: str) -> tuple[Outcome, str]:
        """What becomes of a version whose trial is decided, and why; noted for later processes if it did not pass."""


class TrialSupervisor:
    """Begins trials, looks at them until something is decided, and carries that out.

    Args:
        threads: Where runs are done again to compare outputs.
        look_seconds: Time between two looks.
    """

    def __init__(self, stage: Stage, threads: Executor, start_task: StartTask, look_seconds: float) -> None:
        self._stage = stage
        self._threads = threads
        self._start_task = start_task
        self._look_seconds = look_seconds
        self._paused = False

    def begin(self, record: ModelRecord, new: LoadedVersion, plan: CanaryPlan, so_far: Progress = NO_PROGRESS) -> None:
        """Let a version answer its share; all of it where there is no other, or no trial is planned."""
        if record.live is None or not plan.is_trial:
            self._stage.flip(record, new)
            return
        trial = record.trial = Trial(plan, record.live, new, self._threads, time.monotonic(), so_far)
        record.set_status(new.version, VersionState.READY, f"on trial with {plan.fraction:.3g} of the requests")
        _logger.info("Version %d of '%s' is tried with %.3g of the requests", new.version, record.name, plan.fraction)
        self._start_task(self._watch(record, trial), f"trial of {record.name} {new.version}")

    def end(self, record: ModelRecord, outcome: Outcome, reason: str) -> None:
        """End the trial of a model, whose lock is held; nothing happens if there is none."""
        trial = record.trial
        if trial is None:
            return
        trial.end(outcome, reason, time.monotonic())
        record.trial, record.last_trial = None, trial
        _logger.info("Trial of version %d of '%s': %s, %s", trial.new.version, record.name, outcome.value, reason)
        if outcome is Outcome.PROMOTED:
            self._stage.flip(record, trial.new)
            return
        record.refusals += 1
        record.set_status(trial.new.version, VersionState.UNLOADING, "requests in flight finish on it")
        trial.new.retire()
        self._stage.release(trial.new, record, f"rolled back: {reason}")

    def pause(self) -> None:
        """Decide nothing from now on: another process takes over, and may go on with these trials."""
        self._paused = True

    def resume(self) -> None:
        """Decide again."""
        self._paused = False

    def described(self, record: ModelRecord) -> dict[str, Any] | None:
        """The trial of a model that runs, or the last one, as JSON; None if there was none."""
        trial = record.trial or record.last_trial
        return None if trial is None else trial.as_json(time.monotonic())

    def running(self, records: Iterable[ModelRecord]) -> dict[str, CarriedTrial]:
        """Trials that run, by model."""
        now = time.monotonic()
        trials = {record.name: record.trial for record in records if record.trial is not None}
        return {name: CarriedTrial(of.new.version, of.plan, of.progress(now)) for name, of in trials.items()}

    async def _watch(self, record: ModelRecord, trial: Trial) -> None:
        while record.trial is trial:
            await asyncio.sleep(self._look_seconds)
            async with self._stage.lock_of(record.name):
                outcome, reason = trial.look(time.monotonic())
                if record.trial is not trial or outcome is Outcome.RUNNING or self._paused:
                    continue
                outcome, reason = await self._stage.noted(record.name, trial.new.version, outcome, reason)
                self.end(record, outcome, reason)


async def promotion_of(trial: Trial) -> None:
    """Wait until a version on trial answers everything.

    Raises:
        ArtefactRefusedError: It was rolled back.
        UnavailableError: This process leaves before that is decided.
    """
    await trial.is_settled.wait()
    if trial.outcome is Outcome.ROLLED_BACK:
        raise was_rolled_back(trial.new.model, trial.new.version, trial.reason)
    if trial.outcome is Outcome.RUNNING:
        raise UnavailableError("the server leaves while the version is on trial; load it from the one that follows")


def was_rolled_back(model: str, version: int, reason: str) -> ArtefactRefusedError:
    """The error for a version that did not pass."""
    return ArtefactRefusedError(
        f"version {version} of model '{model}' was rolled back: {reason}; put a better one there with a higher number, "
        "or load this one by its number to have it all the same"
    )
