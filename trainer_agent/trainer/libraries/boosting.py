"""What LightGBM and XGBoost have in common: a booster gets one more round, which is an epoch of the job."""

from __future__ import annotations

import abc
import re
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from tiercel.trainer_agent.errors import CheckpointError, DeliveryFailedError
from tiercel.trainer_agent.trainer.callback_loop import CallbackLoop
from tiercel.trainer_agent.trainer.library_model import Library, LibraryModel
from tiercel.trainer_agent.trainer.session import connect_model
from tiercel.trainer_agent.trainer.signature import Evaluate, ExampleInput

Booster = TypeVar("Booster")

_STRANGE = re.compile(r"[^A-Za-z0-9_./-]")

Scores = list[tuple[Any, ...]]
"""What a round was measured as: data set, metric, value, and what else its library tells of it."""


class BoosterLibrary(Library, Generic[Booster]):
    """A booster in training, and what each of its rounds was measured as."""

    def __init__(self) -> None:
        self.booster: Booster | None = None
        self.restored: Booster | None = None  # of an earlier run
        self.rounds: list[Scores] = []  # of this run and of those before it

    @property
    def current(self) -> Booster:
        """The booster in training.

        Raises:
            DeliveryFailedError: There is none yet.
        """
        if self.booster is None:
            raise DeliveryFailedError("there is no booster before the first round has ended")
        return self.booster

    def freeze(self) -> bytes:
        """As its library writes it."""
        return self.written(self.current)

    def save(self) -> Any:
        """See :class:`~tiercel.trainer_agent.trainer.library_model.Library`."""
        booster = self.booster or self.restored
        return None if booster is None else (self.written(booster), self.rounds)

    def restore(self, saved: Any, *, warm: bool) -> None:
        """See :class:`~tiercel.trainer_agent.trainer.library_model.Library`."""
        if saved is not None:
            written, rounds = saved
            self.restored = self.booster = self.read(written)
            self.rounds = [] if warm else list(rounds)

    @abc.abstractmethod
    def written(self, booster: Booster) -> bytes:
        """A booster as bytes."""

    @abc.abstractmethod
    def read(self, written: bytes) -> Booster:
        """A booster of bytes."""

    @abc.abstractmethod
    def trees_of(self, booster: Booster) -> int:
        """How many rounds a booster had."""


class Boosting(Generic[Booster]):
    """A job whose epochs are the rounds of a booster.

    Args:
        library: The booster.
        example_input: As for :func:`tiercel.trainer.connect`.
        evaluate: As for :func:`tiercel.trainer.connect`.
        checkpoint_seconds: As for :func:`tiercel.trainer.connect`.
    """

    def __init__(
        self,
        library: BoosterLibrary[Booster],
        example_input: ExampleInput,
        evaluate: Evaluate | None,
        checkpoint_seconds: float,
    ) -> None:
        self._library = library
        self._job = connect_model(LibraryModel(library, example_input), evaluate, checkpoint_seconds)
        self._loop: CallbackLoop  # from the moment on at which it begins
        self.has_begun = False
        self.earlier: tuple[Scores, ...] = tuple(library.rounds)
        """What the rounds of earlier runs of the job were measured as."""

    @property
    def restored(self) -> Booster | None:
        """What an earlier run of the job got to; None in a first one."""
        return self._library.restored

    def begin(self, rounds: int, trees: int, how: str) -> bool:
        """Begin the first round that is left; False where none is.

        Args:
            rounds: How many the whole training has.
            trees: How many rounds the booster had that this training goes on from.
            how: What the script has to say to go on from :attr:`restored`.

        Raises:
            CheckpointError: It does not go on from there.
        """
        if self.restored is not None and trees != self._library.trees_of(self.restored):
            raise CheckpointError(
                "an earlier run of this job has left a checkpoint, and the training begins anew; "
                f"let the script say {how}"
            )
        self._loop, self.has_begun = CallbackLoop(self._job, rounds), True
        return self._loop.next_epoch() is not None

    def end_round(self, booster: Booster, scores: Iterable[tuple[Any, ...]], how: str) -> bool:
        """Report a round, and begin the next one; False where the training has to end.

        Args:
            booster: With the round in it.
            scores: What it was measured as.
            how: What the script has to say to have it measured.

        Raises:
            ValueError: Nothing was measured.
        """
        self._library.booster = booster
        self._library.rounds.append(told := list(scores))
        if not told:
            raise ValueError(f"TiercelCallback reports what each round is measured as; give {how}")
        self._job.report(**{_STRANGE.sub("_", f"{each[0]}_{each[1]}"): each[2] for each in told})
        return self._loop.next_epoch() is not None
