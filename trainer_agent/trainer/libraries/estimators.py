"""Estimators of scikit-learn, in loops of ``partial_fit`` or ``warm_start``."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Protocol, TypeGuard

import numpy as np

from tiercel.trainer_agent.trainer.library_model import Library, needing
from tiercel.trainer_agent.trainer.onnx_files import OnnxSource
from tiercel.trainer_agent.trainer.signature import Array


class Estimating(Protocol):
    """What is asked of an estimator."""

    def get_params(self, deep: bool = True) -> Any:
        """What it was made with."""

    def predict(self, X: Any) -> Any:  # noqa: N803 - scikit-learn's
        """Labels, or numbers."""


class Estimator(Library):
    """An estimator, which is trained, and put back, in its place.

    Args:
        estimator: An object of scikit-learn, or a pipeline of them.
    """

    def __init__(self, estimator: Estimating) -> None:
        self._estimator = estimator

    def predict(self, rows: Any) -> Any:
        """Probabilities of a classifier that has them, else what it predicts."""
        # A warm start may leave the method to be found out by what was fitted.
        ask: Callable[[Any], Any] = getattr(self._estimator, "predict_proba", None) or self._estimator.predict
        return ask(rows)

    def freeze(self) -> bytes:
        """A pickle."""
        return pickle.dumps(self._estimator, protocol=5)

    def convert(self, frozen: Any, row: Array) -> OnnxSource:
        """By skl2onnx."""
        with needing("skl2onnx"):
            from skl2onnx import to_onnx
        estimator = pickle.loads(frozen)  # noqa: S301 - of this process, or of the job's checkpoint
        # Scores as maps are nothing that a server takes.
        options = {id(estimator): {"zipmap": False}} if hasattr(estimator, "classes_") else None
        model: OnnxSource = to_onnx(estimator, np.zeros((1, *row.shape), np.float32), options=options)
        return model

    def restore(self, saved: Any, *, warm: bool) -> None:
        """See :class:`~tiercel.trainer_agent.trainer.library_model.Library`."""
        del warm  # there is nothing beside the model
        found = pickle.loads(saved)  # noqa: S301 - of the job's checkpoint
        if type(found) is not type(self._estimator):
            raise ValueError(f"it is a {type(found).__name__}, and this script's is a {type(self._estimator).__name__}")
        vars(self._estimator).clear()
        vars(self._estimator).update(vars(found))


def is_estimator(model: object) -> TypeGuard[Estimating]:
    """Whether it is one of scikit-learn, or can be used like one."""
    return all(hasattr(model, name) for name in ("fit", "predict", "get_params"))
