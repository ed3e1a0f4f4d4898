"""ONNX Runtime behind a small interface: build a session from verified bytes, warm it, run it. All functions block."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from tiercel.serving.batching.measure import Batching, measured_batching
from tiercel.serving.bfloat16 import needs_bfloat16, run_with_bfloat16
from tiercel.serving.errors import ArtefactRefusedError, InferenceFailedError, InvalidRequestError
from tiercel.serving.tensors import BY_ONNX, Array, TensorSpec

Observer = Callable[[Sequence[str], Mapping[str, Array], Sequence[Array]], None]

_WARM_UP_SECONDS = 0.2
_WARM_UP_ELEMENTS = 4 * 1024**2
_MAX_INLINE_FACTOR = 64


def open_session(model: bytes | str, threads: int = 1) -> ort.InferenceSession:
    """An ONNX Runtime session on the CPU with ``threads`` threads, from the content of a model or the path to it.

    From bytes it is built under Python's lock, tens of milliseconds for tens of megabytes; from a file it is not.

    Raises:
        ArtefactRefusedError: ONNX Runtime does not load the model.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # A spinning thread would take CPU from training for nothing.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors have no common base
        raise ArtefactRefusedError(f"ONNX Runtime does not load it: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The first line of an error, cut to a length that fits a message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:400]


def tensor_specs(nodes: Sequence[Any], kind: str) -> dict[str, TensorSpec]:
    """Inputs or outputs as ONNX Runtime describes them, by name.

    Raises:
        ArtefactRefusedError: One is not a tensor, or has elements the protocol cannot carry.
    """
    specs: dict[str, TensorSpec] = {}
    for node in nodes:
        data_type = BY_ONNX.get(node.type)
        if data_type is None:
            raise ArtefactRefusedError(f"{kind} '{node.name}' is a {node.type}, which cannot be served")
        shape = tuple(size if isinstance(size, int) and size >= 0 else -1 for size in node.shape)
        specs[node.name] = TensorSpec(node.name, data_type, shape)
    return specs


def synthesised(inputs: Mapping[str, TensorSpec], shapes: Mapping[str, Sequence[int]]) -> dict[str, Array] | None:
    """Inputs to warm a model with: zeros or empty strings, of ``shapes`` where given, else 1 for each free dimension.

    Returns:
        Arrays by name, or None when they would be larger than is sensible for a warm-up.
    """
    feeds: dict[str, Array] = {}
    for name, spec in inputs.items():
        shape = tuple(shapes.get(name) or (1 if size < 0 else size for size in spec.shape))
        if math.prod(shape) > _WARM_UP_ELEMENTS:
            return None
        feeds[name] = (
            np.full(shape, "", np.object_) if spec.data_type.is_bytes else np.zeros(shape, spec.data_type.dtype)
        )
    return feeds


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What warming a session showed.

    Attributes:
        seconds: The fastest run, or None when it could not be run on synthesised inputs.
        elements: Input elements of that run.
    """

    seconds: float | None
    elements: int

    def inline_elements(self, budget: float) -> int:
        """Input elements up to which a run takes at most ``budget`` seconds, if time grows with them; -1 for none."""
        if self.seconds is None or self.seconds >= budget:
            return -1
        factor = min(_MAX_INLINE_FACTOR, budget / max(self.seconds, 1e-9))
        return int(max(self.elements, 1) * factor)


class Session:
    """A model that is ready to run; safe to use from several threads.

    Args:
        model: The ONNX file's content, or the path to it.
        threads: Threads that one run may use.

    Attributes:
        inputs: Specifications by name.
        outputs: Specifications by name, in the model's order.
        output_names: Of all of them, in that order.
        is_uniform: Whether all rows that pass the checks have the same shape: no axis but the first is free.
        batching: What batching does to it; nothing good unless that was measured.
        batch_rows: Rows that are run together at most; 1 where calls must not run together.
        inline_elements: Input elements up to which it is cheaper to run on the event loop than to change threads.
        threads: Threads that one run may use.
        labels: What classes are called, by index.
        observer: Called with outputs' names, inputs and results after each run that went well, in its thread; or None.

    Raises:
        ArtefactRefusedError: The model cannot be served.
    """

    __slots__ = (
        "_has_bfloat16", "_session", "batch_rows", "batching", "inline_elements", "inputs", "is_uniform", "labels",
        "observer", "output_names", "outputs", "threads",
    )  # fmt: skip

    def __init__(self, model: bytes | str, threads: int = 1) -> None:
        self._session = open_session(model, threads)
        self.inputs = tensor_specs(self._session.get_inputs(), "input")
        self.outputs = tensor_specs(self._session.get_outputs(), "output")
        self.output_names = tuple(self.outputs)
        self.is_uniform = all(-1 not in spec.shape[1:] for spec in self.inputs.values())
        self.batching = Batching(None, "it was not measured")
        self.batch_rows = 1
        self.labels: tuple[str, ...] = ()
        self._has_bfloat16 = needs_bfloat16(self.inputs.values(), self.outputs.values())
        self.inline_elements = -1
        self.threads = threads
        self.observer: Observer | None = None

    def estimate(self, rows: int) -> float:
        """Seconds that a batch of ``rows`` takes at least, as measured when the model was loaded; 0 if it was not."""
        profile = self.batching.profile
        return profile.estimate(rows) if profile is not None else 0.0

    def batch_by(self, batching: Batching, inline_budget: float) -> None:
        """Run calls together as it was found to pay; on the event loop while that takes less than the budget."""
        self.batching = batching
        profile = batching.profile
        if profile is None:
            return
        self.batch_rows = profile.best_rows()
        if self.inline_elements >= 0:
            inline_rows = profile.rows_within(inline_budget)
            self.inline_elements = max(self.inline_elements, inline_rows * batching.elements)

    def warm_up(self, shapes: Mapping[str, Sequence[int]]) -> WarmUp:
        """Run a few times, so that no request pays for first-run allocations, and measure the fastest run."""
        feeds = synthesised(self.inputs, shapes)
        if feeds is None:
            return WarmUp(None, 0)
        names = list(self.outputs)
        best: float | None = None
        give_up = time.perf_counter() + _WARM_UP_SECONDS
        for _ in range(8):
            begin = time.perf_counter()
            try:
                self.run(names, feeds)
            except (InvalidRequestError, InferenceFailedError):  # zeros need not make sense to a model
                return WarmUp(None, 0)
            end = time.perf_counter()
            best = end - begin if best is None else min(best, end - begin)
            if end > give_up:
                break
        return WarmUp(best, sum(feed.size for feed in feeds.values()))

    def close(self) -> None:
        """Free the model's memory now, in this thread, whoever still knows this object; nobody may run it any more."""
        self._session = None

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Array], options: Any = None) -> list[Array]:
        """Run the model.

        Args:
            outputs: Names of the outputs to compute.
            feeds: Inputs by name; their type and rank were checked.
            options: ``ort.RunOptions``, by which another thread can end the run.

        Raises:
            InvalidRequestError: The values do not fit the model, such as two batch sizes that differ.
            InferenceFailedError: The model failed.
        """
        results: list[Array]
        try:
            if self._has_bfloat16:
                results = run_with_bfloat16(self._session, outputs, feeds, options)
            else:
                results = self._session.run(outputs, feeds, options)
        except ort_errors.InvalidArgument as error:
            raise InvalidRequestError(f"the model does not take these inputs: {first_line(error)}") from error
        except Exception as error:  # ONNX Runtime's errors have no common base
            raise InferenceFailedError(f"the model failed: {first_line(error)}") from error
        if self.observer is not None:
            self.observer(outputs, feeds, results)
        return results


def build_session(
    model: bytes | str,
    shapes: Mapping[str, Sequence[int]],
    threads: int,
    inline_budget: float,
    max_batch_rows: int = 1,
) -> Session:
    """A warm session that knows whether it is fast enough for the event loop.

    Args:
        model: The ONNX file's content, or the path to it.
        shapes: Shapes by input to warm up with; others are made up.
        threads: Threads that one run may use.
        inline_budget: Seconds a run may take on the event loop; 0 to always use threads.
        max_batch_rows: Rows that may run together at most; 1 to run each request by itself.

    Raises:
        ArtefactRefusedError: The model cannot be served.
    """
    session = Session(model, threads)
    session.inline_elements = session.warm_up(shapes).inline_elements(inline_budget)
    session.batch_by(measured_batching(session, shapes, max_batch_rows), inline_budget)
    return session
