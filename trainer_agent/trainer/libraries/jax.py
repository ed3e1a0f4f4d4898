"""Functions of JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tiercel.trainer_agent.trainer.job import Job
from tiercel.trainer_agent.trainer.library_model import Library, LibraryModel, needing
from tiercel.trainer_agent.trainer.onnx_files import OnnxSource
from tiercel.trainer_agent.trainer.session import CHECKPOINT_SECONDS, connect_model
from tiercel.trainer_agent.trainer.signature import Array, Evaluate, ExampleInput


def connect(
    function: Callable[[Any, Any], Any],
    weights: Callable[[], Any],
    example_input: ExampleInput,
    evaluate: Evaluate | None = None,
    *,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Job:
    """Connect a script of JAX to the agent that runs it, as :func:`tiercel.trainer.connect` does one of PyTorch.

    Args:
        function: ``function(weights, rows)`` is the model, and what is served.
        weights: Returns the weights as they are now, a tree of arrays. :meth:`Job.restored` returns them in a later
            run. What else the next run needs, such as the state of an optimizer, may be in the tree.
        example_input: A few rows, as for :func:`tiercel.trainer.connect`.
        evaluate: As for :func:`tiercel.trainer.connect`; None: what was reported is believed.
        checkpoint_seconds: As for :func:`tiercel.trainer.connect`.

    Raises:
        AgentUnreachableError, RanksError, CheckpointError: As of :func:`tiercel.trainer.connect`.
    """
    return connect_model(LibraryModel(_Function(function, weights), example_input), evaluate, checkpoint_seconds)


class _Function(Library):
    def __init__(self, function: Callable[[Any, Any], Any], weights: Callable[[], Any]) -> None:
        self._function, self._weights = function, weights

    def predict(self, *inputs: Any) -> Any:
        """As the function answers."""
        return jax.tree.map(np.asarray, self._function(self._weights(), *inputs))

    def freeze(self) -> Any:
        """Its weights, as arrays of NumPy."""
        return jax.tree.map(np.array, self._weights())

    def convert(self, frozen: Any, *row: Array) -> OnnxSource:
        """By jax2onnx."""
        with needing("jax2onnx"):
            from jax2onnx import to_onnx
        weights = jax.tree.map(jnp.asarray, frozen)
        inputs = [jax.ShapeDtypeStruct(("rows", *each.shape), each.dtype) for each in row]
        model: OnnxSource = to_onnx(lambda rows: self._function(weights, rows), inputs=inputs)
        return model

    def restore(self, saved: Any, *, warm: bool) -> None:
        """The script does it."""
