"""A callback that makes a script of XGBoost a job."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import xgboost
from xgboost.callback import TrainingCallback

from tiercel.trainer_agent.trainer.libraries.boosting import BoosterLibrary, Boosting, Scores
from tiercel.trainer_agent.trainer.library_model import needing
from tiercel.trainer_agent.trainer.onnx_files import OnnxSource
from tiercel.trainer_agent.trainer.session import CHECKPOINT_SECONDS
from tiercel.trainer_agent.trainer.signature import Array, Evaluate, ExampleInput, as_array

_GO_ON = "xgb_model=callback.booster"
_MEASURE = "evals=, or eval_set= to fit()"

Result = TypeVar("Result")
Log = dict[str, dict[str, list[Any]]]


class TiercelCallback(TrainingCallback):
    """Reports what each round is measured as, is paced and stopped, keeps checkpoints, and hands the booster over.

    A round is an epoch. Scores are reported by data set and metric, as ``test_merror``; the job's metric has to be
    among them. A run that was ended goes on after the last round that a checkpoint has where the script says
    ``num_boost_round=callback.rounds_left(40), xgb_model=callback.booster``.

    Args:
        example_input: A few rows, as for :func:`tiercel.trainer.connect`.
        evaluate: As for :func:`tiercel.trainer.connect`; None: what XGBoost measures is believed.
        others: Callbacks that remember or count rounds, such as ``xgboost.callback.EarlyStopping`` or
            ``LearningRateScheduler``. They are told of the rounds of earlier runs as well, as if these had been of this
            one.
        checkpoint_seconds: As for :func:`tiercel.trainer.connect`.
    """

    def __init__(
        self,
        example_input: ExampleInput,
        evaluate: Evaluate | None = None,
        *,
        others: Sequence[TrainingCallback] = (),
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ) -> None:
        super().__init__()
        self._others = list(others)
        self._boosting = Boosting(BoosterOfXgboost(), example_input, evaluate, checkpoint_seconds)
        self._rounds: int | None = None
        self._log: Log = {}
        self._has_ended = False

    @property
    def booster(self) -> xgboost.Booster | None:
        """What an earlier run of the job got to, to go on from; None in a first one."""
        return self._boosting.restored

    def rounds_left(self, rounds: int) -> int:
        """How many rounds are left to train of a whole training's."""
        self._rounds = rounds
        return max(0, rounds - len(self._boosting.earlier))

    def before_training(self, model: Any) -> Any:
        """Begin the first round that is left, and tell the others what was before it.

        Raises:
            CheckpointError: There is a checkpoint, and the script does not go on from it.
            TypeError: It is a cross-validation.
            ValueError: The script does not say how many rounds there are.
        """
        if not isinstance(model, xgboost.Booster):
            raise TypeError("TiercelCallback is for one booster, and cv() trains several")
        if self._rounds is None:
            raise ValueError("TiercelCallback needs the rounds of the whole training; say callback.rounds_left(ROUNDS)")
        self._has_ended = not self._boosting.begin(self._rounds, model.num_boosted_rounds(), _GO_ON)
        for each in self._others:
            each.before_training(model)
            if hasattr(each, "starting_round"):  # what is told of it counts from the first round of all
                each.starting_round -= len(self._boosting.earlier)
        for number, scores in enumerate(self._boosting.earlier):
            self._note(scores)
            self._has_ended = self._tell(model, number) or self._has_ended
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Whether the training ends before this round."""
        epoch += len(self._boosting.earlier)
        stops = [each.before_iteration(model, epoch, self._log) for each in self._others if not self._has_ended]
        return self._has_ended or any(stops)

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Report, and whether the training ends after this round.

        Raises:
            ValueError: Nothing is measured.
        """
        scores = [(data, metric, values[-1]) for data, log in evals_log.items() for metric, values in log.items()]
        self._note(scores)
        goes_on = self._boosting.end_round(model, scores, _MEASURE)
        stops = self._tell(model, epoch + len(self._boosting.earlier))
        return stops or not goes_on

    def after_training(self, model: Any) -> Any:
        """As the others leave it."""
        for each in self._others:
            model = each.after_training(model)
        return model

    def _note(self, scores: Scores) -> None:
        for data, metric, value in scores:
            self._log.setdefault(data, {}).setdefault(metric, []).append(value)

    def _tell(self, model: Any, epoch: int) -> bool:
        # All of them, whatever the first says.
        stops = [each.after_iteration(model, epoch, self._log) for each in self._others]
        return any(stops)


class BoosterOfXgboost(BoosterLibrary[xgboost.Booster]):
    """A booster of XGBoost."""

    def predict(self, *inputs: Any) -> Any:
        """Probabilities of all classes where there are classes, as the ONNX file has it."""
        rows, kind = as_array(*inputs), _objective(self.current)
        if kind == "multi:softmax":  # it answers labels, and its file both
            scores = self.current.inplace_predict(rows, predict_type="margin", validate_features=False)
            powers = np.exp(scores - scores.max(axis=1, keepdims=True))
            return powers / powers.sum(axis=1, keepdims=True)
        answer = self.current.inplace_predict(rows, validate_features=False)
        return np.stack([1 - answer, answer], axis=1) if kind == "binary:logistic" else answer

    def convert(self, frozen: Any, *row: Array) -> OnnxSource:
        """By onnxmltools."""
        with needing("onnxmltools"):
            from onnxmltools.convert import convert_xgboost
            from onnxmltools.convert.common.data_types import FloatTensorType
        return _aside(lambda: _converted(convert_xgboost, FloatTensorType([None, *row[0].shape]), frozen))

    def written(self, booster: xgboost.Booster) -> bytes:
        """Its own binary form."""
        return bytes(booster.save_raw("ubj"))

    def read(self, written: bytes) -> xgboost.Booster:
        """Of its own binary form."""
        return _aside(lambda: _read(written))

    def trees_of(self, booster: xgboost.Booster) -> int:
        """See :class:`~tiercel.trainer_agent.trainer.libraries.boosting.BoosterLibrary`."""
        return int(booster.num_boosted_rounds())


def _aside(work: Callable[[], Result]) -> Result:
    """What a thread of its own returns: where a booster is configured, draws of that thread's trainings begin anew."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


def _read(written: bytes) -> xgboost.Booster:
    booster = xgboost.Booster()
    booster.load_model(bytearray(written))
    booster.save_config()  # configures it, which its first use would do otherwise
    return booster


def _converted(convert: Callable[..., OnnxSource], taken: Any, frozen: bytes) -> OnnxSource:
    booster = _read(frozen)
    # The converter leaves out rounds after the best one, and knows columns by its own names for them.
    booster.set_attr(best_iteration=None, best_score=None)
    booster.feature_names = None
    if _objective(booster) == "multi:softmax":  # of which the converter leaves the scores as they are
        booster.set_param({"objective": "multi:softprob"})
    return convert(booster, initial_types=[("X", taken)])


def _objective(booster: xgboost.Booster) -> str:
    return str(json.loads(booster.save_config())["learner"]["objective"]["name"])
