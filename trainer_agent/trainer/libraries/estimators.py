"""Estimators of scikit-learn, in loops of ``partial_fit`` or ``warm_start``."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeGuard

import numpy as np

from tiercel.trainer_agent.trainer.frames import columns_of, has_texts, is_frame
from tiercel.trainer_agent.trainer.libraries.converters import settings_of
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
        self._columns: tuple[Any, ...] = ()  # of the data frame that it takes; none where it takes an array

    def inputs_of(self, example_input: Any) -> Any:
        """An input for each column of a data frame that has texts, or of which the estimator picks columns by name."""
        if not is_frame(example_input):
            return example_input
        parts = (self._estimator, *self._estimator.get_params().values())
        if not (has_texts(example_input) or any(hasattr(each, "transformers") for each in parts)):
            return example_input
        self._columns = tuple(example_input.columns)
        return columns_of(example_input)

    def predict(self, *inputs: Any) -> Any:
        """Probabilities of a classifier that has them, else what it predicts."""
        rows = inputs[0] if not self._columns or is_frame(inputs[0]) else self._frame(inputs)
        # A warm start may leave the method to be found out by what was fitted.
        ask: Callable[[Any], Any] = getattr(self._estimator, "predict_proba", None) or self._estimator.predict
        return ask(rows)

    def freeze(self) -> bytes:
        """A pickle."""
        return pickle.dumps(self._estimator, protocol=5)

    def convert(self, frozen: Any, *row: Array) -> OnnxSource:
        """By skl2onnx."""
        with needing("skl2onnx"):
            from skl2onnx import to_onnx
            from skl2onnx.common.data_types import FloatTensorType, StringTensorType
        estimator = pickle.loads(frozen)  # noqa: S301 - of this process, or of the job's checkpoint
        names = [str(name) for name in self._columns] or ["X"]
        types = [
            (name, (FloatTensorType if each.dtype.kind in "biuf" else StringTensorType)([None, *each.shape]))
            for name, each in zip(names, row, strict=True)
        ]
        return _named(to_onnx(estimator, initial_types=types, **settings_of(estimator)), names)

    def _frame(self, inputs: Sequence[Any]) -> Any:
        import pandas as pd

        columns = (np.asarray(each)[:, 0] for each in inputs)
        return pd.DataFrame(dict(zip(self._columns, columns, strict=True)))

    def restore(self, saved: Any, *, warm: bool) -> None:
        """See :class:`~tiercel.trainer_agent.trainer.library_model.Library`."""
        del warm  # there is nothing beside the model
        found = pickle.loads(saved)  # noqa: S301 - of the job's checkpoint
        if type(found) is not type(self._estimator):
            raise ValueError(f"it is a {type(found).__name__}, and this script's is a {type(self._estimator).__name__}")
        vars(self._estimator).clear()
        vars(self._estimator).update(vars(found))


def _named(model: Any, names: Sequence[str]) -> OnnxSource:
    """With inputs of these names: the converter writes '_' for what is neither letter nor digit."""
    changed = {value.name: name for value, name in zip(model.graph.input, names, strict=True) if value.name != name}
    for value in model.graph.input:
        value.name = changed.get(value.name, value.name)
    for node in model.graph.node if changed else ():
        node.input[:] = [changed.get(name, name) for name in node.input]
    found: OnnxSource = model
    return found


def is_estimator(model: object) -> TypeGuard[Estimating]:
    """Whether it is one of scikit-learn, or can be used like one."""
    # Of the class: a stack of estimators has its methods only once it is fitted.
    return all(hasattr(type(model), name) for name in ("fit", "predict", "get_params"))
