"""A study of Optuna's in a file: which parameters are tried next, and what became of those that were."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from tiercel.broker.client.sweeps.ranges import Choices, Integers, Range
from tiercel.core.errors import SetupError, wrong_field
from tiercel.core.jobs import Direction

_JOB = "job"
_INTERRUPTED = "interrupted"
_SAMPLERS: dict[str, Callable[[], optuna.samplers.BaseSampler]] = {
    "tpe": optuna.samplers.TPESampler,
    "random": optuna.samplers.RandomSampler,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A trial that has begun."""

    number: int  # from 0
    parameters: dict[str, float | int | str]  # by name
    job_id: str  # its job, or empty where it has none yet


class Study:
    """A study in a file; a context manager, used by one process at a time.

    Args:
        file: The SQLite database; made where there is none.
        name: The study's.
        direction: Whether more is better.
        ranges: Of its parameters, by name.
        sampler: One of Optuna's: ``tpe`` or ``random``.

    Raises:
        InvalidSpecError: The file has a study of this name with other ranges or another direction.
        SetupError: The file is no database of Optuna's.
    """

    def __init__(self, file: Path, name: str, direction: Direction, ranges: Mapping[str, Range], sampler: str) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._distributions = {each: _distribution(found) for each, found in ranges.items()}
        try:
            self._storage = optuna.storages.RDBStorage(f"sqlite:///{file.absolute()}")
        except (optuna.exceptions.OptunaError, SQLAlchemyError, RuntimeError) as error:
            raise SetupError(f"{file} cannot be used as a study; move it away, or give another --study.") from error
        try:
            self._study = optuna.create_study(
                storage=self._storage,
                study_name=name,
                sampler=_SAMPLERS[sampler](),
                direction="maximize" if direction is Direction.MAX else "minimize",
                load_if_exists=True,
            )
            self.id = self._marked(name, {"direction": direction.value, "ranges": _told(ranges)})
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the file alone."""
        self._storage.remove_session()
        self._storage.engine.dispose()

    def _marked(self, name: str, made_for: dict[str, Any]) -> str:
        """The study's id, made with it; what it was made for cannot change."""
        kept = self._study.user_attrs
        if "id" not in kept:
            self._study.set_user_attr("made_for", made_for)
            self._study.set_user_attr("id", uuid.uuid4().hex)
            return str(self._study.user_attrs["id"])
        if kept["made_for"] != made_for:
            raise wrong_field(
                "study",
                f"{name} was begun with other ranges or another direction; give another name, or the same ranges",
            )
        return str(kept["id"])

    def trials(self) -> list[FrozenTrial]:
        """All that there are, in the order of their numbers."""
        return self._study.get_trials(deepcopy=False)

    def count(self) -> int:
        """How many there are, without those that were interrupted."""
        return sum(_INTERRUPTED not in each.user_attrs for each in self.trials())

    def unfinished(self) -> list[Asked]:
        """Trials that had begun when an earlier life of the sweep ended; those without all parameters are given up."""
        begun = [each for each in self.trials() if each.state is TrialState.RUNNING]
        whole = [each for each in begun if each.params.keys() == self._distributions.keys()]
        for each in begun:
            if each not in whole:
                self.interrupted(each.number)
        return [_asked(each) for each in whole]

    def finished(self) -> list[Asked]:
        """Trials that are over and had a job."""
        return [_asked(each) for each in self.trials() if each.state.is_finished() and _JOB in each.user_attrs]

    def ask(self) -> Asked:
        """The next trial."""
        trial = self._study.ask(self._distributions)
        return Asked(trial.number, dict(trial.params), "")

    def keep_job(self, number: int, job_id: str) -> None:
        """Keep which job a trial is."""
        self._trial(number).set_user_attr(_JOB, job_id)

    def completed(self, number: int, value: float) -> None:
        """A trial has ended with this value."""
        self._study.tell(number, value)

    def stopped(self, number: int, epoch: int, value: float, reason: str) -> None:
        """A trial was stopped early, when it had this value."""
        trial = self._trial(number)
        trial.set_user_attr("reason", reason)
        trial.report(value, epoch)
        self._study.tell(number, state=TrialState.PRUNED)

    def failed(self, number: int, reason: str) -> None:
        """A trial has no value."""
        self._trial(number).set_user_attr("reason", reason)
        self._study.tell(number, state=TrialState.FAIL)

    def interrupted(self, number: int) -> None:
        """A trial was given up with the sweep; another one takes its place in the number of all."""
        self._trial(number).set_user_attr(_INTERRUPTED, True)
        self._study.tell(number, state=TrialState.FAIL)

    def best(self) -> FrozenTrial | None:
        """The best of the trials that were completed, or None."""
        completed = [each for each in self.trials() if each.state is TrialState.COMPLETE]
        return self._study.best_trial if completed else None

    def _trial(self, number: int) -> optuna.trial.Trial:
        return optuna.trial.Trial(self._study, self.trials()[number]._trial_id)  # noqa: SLF001 - no other way to one that is resumed


def _asked(trial: FrozenTrial) -> Asked:
    return Asked(trial.number, dict(trial.params), trial.user_attrs.get(_JOB, ""))


def _distribution(found: Range) -> BaseDistribution:
    if isinstance(found, Choices):
        return CategoricalDistribution(found.words)
    if isinstance(found, Integers):
        return IntDistribution(found.low, found.high)
    return FloatDistribution(found.low, found.high, log=found.log)


def _told(ranges: Mapping[str, Range]) -> dict[str, Any]:
    """As JSON gives it back."""
    kept: dict[str, Any] = json.loads(
        json.dumps({name: [type(each).__name__, asdict(each)] for name, each in ranges.items()})
    )
    return kept
