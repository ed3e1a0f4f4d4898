"""A callback that makes a script of LightGBM a job."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import lightgbm
import numpy as np
from lightgbm.callback import CallbackEnv, EarlyStopException

from tiercel.trainer_agent.trainer.libraries.boosting import BoosterLibrary, Boosting
from tiercel.trainer_agent.trainer.library_model import needing
from tiercel.trainer_agent.trainer.onnx_files import OnnxSource
from tiercel.trainer_agent.trainer.session import CHECKPOINT_SECONDS
from tiercel.trainer_agent.trainer.signature import Array, Evaluate, ExampleInput, as_array

_GO_ON = "init_model=callback.booster"
_MEASURE = "valid_sets=, or eval_set= to fit()"


class TiercelCallback:
    """Reports what each round is measured as, is paced and stopped, keeps checkpoints, and hands the booster over.

    A round is an epoch. Scores are reported by data set and metric, as ``valid_0_multi_error``; the job's metric has to
    be among them. A run that was ended goes on after the last round that a checkpoint has where the script says
    ``init_model=callback.booster``.

    Args:
        example_input: A few rows, as for :func:`tiercel.trainer.connect`.
        evaluate: As for :func:`tiercel.trainer.connect`; None: what LightGBM measures is believed.
        others: Callbacks that remember rounds, such as ``lightgbm.early_stopping``. They are told of the rounds of
            earlier runs as well, as if these had been of this one.
        checkpoint_seconds: As for :func:`tiercel.trainer.connect`.

    Raises:
        ValueError: One of the others is to be called before a round.
    """

    # Before the library's own early stopping, which may leave no word to whoever comes later.
    order = 25
    before_iteration = False

    def __init__(
        self,
        example_input: ExampleInput,
        evaluate: Evaluate | None = None,
        *,
        others: Sequence[Callable[[CallbackEnv], None]] = (),
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ) -> None:
        if any(getattr(each, "before_iteration", False) for each in others):
            raise ValueError("others are called after a round; give those before one to LightGBM beside this callback")
        self._others = sorted(others, key=lambda each: getattr(each, "order", 0))
        self._boosting = Boosting(BoosterOfLightgbm(), example_input, evaluate, checkpoint_seconds)

    @property
    def booster(self) -> lightgbm.Booster | None:
        """What an earlier run of the job got to, to go on from; None in a first one."""
        return self._boosting.restored

    def __call__(self, env: CallbackEnv) -> None:
        """After a round.

        Raises:
            EarlyStopException: The training ends here.
            CheckpointError: There is a checkpoint, and the script does not go on from it.
            TypeError: It is a cross-validation.
            ValueError: Nothing is measured.
        """
        if not isinstance(env.model, lightgbm.Booster):
            raise TypeError("TiercelCallback is for one booster, and cv() trains several")
        earlier = self._boosting.earlier
        began, rounds = env.begin_iteration - len(earlier), env.end_iteration - env.begin_iteration
        whole = dataclasses.replace(env, begin_iteration=began, end_iteration=began + rounds)
        if not self._boosting.has_begun:
            goes_on = self._boosting.begin(rounds, env.begin_iteration, _GO_ON)
            try:
                for number, scores in enumerate(earlier):
                    self._tell(dataclasses.replace(whole, iteration=began + number, evaluation_result_list=scores))
            except EarlyStopException:
                env.model.rollback_one_iter()
                raise
            if not goes_on:
                env.model.rollback_one_iter()
                raise EarlyStopException(env.iteration - 1, earlier[-1] if earlier else [])
        goes_on = self._boosting.end_round(env.model, env.evaluation_result_list or [], _MEASURE)
        self._tell(whole)
        if not goes_on and env.iteration + 1 < env.end_iteration:
            raise EarlyStopException(env.iteration, env.evaluation_result_list or [])

    def _tell(self, env: CallbackEnv) -> None:
        for each in self._others:
            each(env)


class BoosterOfLightgbm(BoosterLibrary[lightgbm.Booster]):
    """A booster of LightGBM."""

    def predict(self, *inputs: Any) -> Any:
        """Of two classes both, as the ONNX file has it."""
        answer = np.asarray(self.current.predict(as_array(*inputs), num_iteration=-1))
        is_binary = answer.ndim == 1 and _objective(self.current) in ("binary", "cross_entropy")
        return np.stack([1 - answer, answer], axis=1) if is_binary else answer

    def convert(self, frozen: Any, *row: Array) -> OnnxSource:
        """By onnxmltools."""
        with needing("onnxmltools"):
            from onnxmltools.convert import convert_lightgbm
            from onnxmltools.convert.common.data_types import FloatTensorType
        types = [("X", FloatTensorType([None, *row[0].shape]))]
        model: OnnxSource = convert_lightgbm(self.read(frozen), initial_types=types, zipmap=False)
        return model

    def written(self, booster: lightgbm.Booster) -> bytes:
        """Its text."""
        return str(booster.model_to_string(num_iteration=-1)).encode()

    def read(self, written: bytes) -> lightgbm.Booster:
        """Of its text."""
        return lightgbm.Booster(model_str=written.decode())

    def trees_of(self, booster: lightgbm.Booster) -> int:
        """See :class:`~tiercel.trainer_agent.trainer.libraries.boosting.BoosterLibrary`."""
        return int(booster.current_iteration())


def _objective(booster: lightgbm.Booster) -> str:
    text = str(booster.model_to_string(num_iteration=1))
    return text.partition("\nobjective=")[2].split("\n", 1)[0].partition(" ")[0]
