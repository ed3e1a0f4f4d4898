"""ONNX Runtime behind a small interface: build a session of a verified model, warm it, run it. All functions block."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from tiercel.core.errors import ArtefactRefusedError, InferenceFailedError, InvalidRequestError, TooLargeError
from tiercel.core.tokenizers import TOKENIZER
from tiercel.serving.runtime.admission import Holding
from tiercel.serving.runtime.decoder import Decoder, decoder_of
from tiercel.serving.runtime.decoding import tried
from tiercel.serving.runtime.measure import Batching, is_borne_out, measured_batching
from tiercel.serving.runtime.model_settings import NOTHING_SET, ModelSettings
from tiercel.serving.runtime.running import no_mark
from tiercel.serving.runtime.sessions import Open, open_on_cpu
from tiercel.serving.runtime.specs import first_line
from tiercel.serving.runtime.tokenizer import tokenizer_of
from tiercel.serving.tensors import Array, TensorSpec

MAX_ANSWER_BYTES = 64 * 1024**2
"""Largest outputs of one call, unless something else is set."""

Observer = Callable[[Sequence[str], Mapping[str, Array], Sequence[Array]], None]

WARM_UP_RUNS = 8
"""Runs of a model that nothing is known of."""
FEW_WARM_UP_RUNS = 2
"""Where it was measured before, so that they only have to make room."""
_WARM_UP_SECONDS = 0.2
_WARM_UP_ELEMENTS = 4 * 1024**2
_MAX_INLINE_FACTOR = 64
# A thread that waits for Python's lock sleeps, and takes up to a tenth of a millisecond to wake. Who lets go of the
# lock for a shorter run than that has it again before.
_WAKE_SECONDS = 2e-4
# What ONNX Runtime says when an arena has reached its limit, or the process has.
_OUT_OF_MEMORY = ("is smaller than requested bytes of", "bad_alloc", "Failed to allocate memory")
_TOO_MUCH_MEMORY = (
    "with these inputs the model takes more memory than one model may have here; send smaller inputs, or fewer rows"
)


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
    """What warming a session showed."""

    seconds: float | None  # the fastest run, or None when it could not be run on synthesised inputs
    elements: int  # input elements of that run

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
        open_session: Decides which provider runs it.

    Attributes:
        provider: What runs it.
        device: Number of its device; 0 on the CPU.
        holding: Its memory of the accelerator, as it is accounted for; None on the CPU.
        inputs: Specifications by name.
        outputs: Specifications by name, in the model's order.
        output_names: Of all of them, in that order.
        is_uniform: Whether all rows that pass the checks have the same shape: no axis but the first is free.
        batching: What batching does to it; nothing good unless that was measured.
        batch_rows: Rows that are run together at most; 1 where calls must not run together.
        queue_rows: Larger ones, rising; each while at least so many wait.
        inline_elements: Input elements up to which it is cheaper to run on the event loop than to change threads.
        threads: Threads that one run may use.
        labels: What classes are called, by index.
        accuracy: What was measured of the version, a fraction; None where nobody knows.
        sha256: Of the ONNX file, hexadecimal; empty where nobody asked.
        settings: What is set for the model.
        answer_bytes: Largest outputs of one call.
        mark: Set while it runs; see :mod:`tiercel.serving.runtime.running`.
        metadata: What its file says beside the graph.
        decoder: What it takes and gives, of a decoder with a key-value cache that was tried; None for any other.
        gives_strings: Whether an output is of strings, whose bytes an array does not know.
        observer: Called with outputs' names, inputs and results after each run that went well, in its thread; or None.

    Raises:
        ArtefactRefusedError: The model cannot be served.
    """

    __slots__ = (
        "_run", "_runner", "_running", "_take_seconds", "accuracy", "answer_bytes", "batch_rows", "batching", "decoder",
        "device", "gives_strings", "holding", "inline_elements", "inputs", "is_uniform", "labels", "mark", "metadata",
        "observer", "output_names", "outputs", "provider", "queue_rows", "settings", "sha256", "threads",
    )  # fmt: skip

    def __init__(self, model: bytes | str, threads: int = 1, open_session: Open = open_on_cpu) -> None:
        opened = open_session(model, threads)
        self._runner = opened.runner
        self._run = opened.runner.run
        self._take_seconds = opened.take_seconds
        self.provider = opened.provider
        self.device = opened.device
        self.holding: Holding | None = None
        self.inputs = opened.inputs
        self.outputs = opened.outputs
        self.output_names = tuple(self.outputs)
        self.is_uniform = all(-1 not in spec.shape[1:] for spec in self.inputs.values())
        self.batching = Batching(None, "it was not measured")
        self.batch_rows = 1
        self.queue_rows: tuple[int, ...] = ()
        self.labels: tuple[str, ...] = ()
        self.accuracy: float | None = None
        self.sha256 = ""
        self.settings = NOTHING_SET
        self.inline_elements = -1
        self.threads = threads
        self.answer_bytes = MAX_ANSWER_BYTES
        self.gives_strings = any(spec.data_type.is_bytes for spec in self.outputs.values())
        self.mark = no_mark()
        self._running = 0
        self.observer: Observer | None = None
        self.metadata = opened.metadata
        self.decoder: Decoder | None = None

    @property
    def busy_clock(self) -> Callable[[], float]:
        """The clock that tells how long a run keeps busy what it runs on, in seconds.

        CPU time does not grow when something else wants the core; but it is one thread's only, and of a run on an
        accelerator next to nothing.
        """
        return time.perf_counter if self.threads > 1 or self.provider.is_accelerator else time.thread_time

    def take_accelerator_seconds(self) -> float:
        """Seconds that an accelerator was kept for runs since the last call; 0 on the CPU."""
        return self._take_seconds() if self._take_seconds is not None else 0.0

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
        self.queue_rows = profile.queue_rows()
        # Also where the few runs of the warm-up were slower than that by chance.
        if inline_rows := profile.rows_within(inline_budget):
            self.inline_elements = max(self.inline_elements, inline_rows * batching.elements)

    def apply(self, settings: ModelSettings) -> None:
        """Be run as it is set for the model; after it was measured."""
        self.settings = settings
        if settings.max_batch_rows is not None:
            self.batch_rows = min(self.batch_rows, settings.max_batch_rows)
            self.queue_rows = tuple(min(rows, settings.max_batch_rows) for rows in self.queue_rows)
        if settings.max_queue_delay:
            self.inline_elements = -1  # what waits for company is not run on the event loop

    def warm_up(self, shapes: Mapping[str, Sequence[int]], runs: int = WARM_UP_RUNS) -> WarmUp:
        """Run a few times, so that no request pays for first-run allocations, and measure the fastest run.

        Raises:
            TooLargeError: It takes more memory than it may.
        """
        feeds = synthesised(self.inputs, shapes)
        if feeds is None:
            return WarmUp(None, 0)
        names = list(self.outputs)
        best: float | None = None
        clock = self.busy_clock
        give_up = time.perf_counter() + _WARM_UP_SECONDS
        for _ in range(runs):
            begin = clock()
            try:
                self.run(names, feeds)
            except (InvalidRequestError, InferenceFailedError):  # zeros need not make sense to a model
                return WarmUp(None, 0)
            seconds = clock() - begin
            best = seconds if best is None else min(best, seconds)
            if time.perf_counter() > give_up:
                break
        return WarmUp(best, sum(feed.size for feed in feeds.values()))

    def try_decoding(self) -> None:
        """Find out whether it is a decoder with a key-value cache, and how it may be run.

        Raises:
            ArtefactRefusedError: It says that it is one, and is not, or its tokenizer is not fit to be run.
            UnavailableError: Its tokenizer cannot be run at the moment.
        """
        found = decoder_of(self.inputs, self.outputs, self.metadata)
        if found is not None:
            self.decoder = tried(found, self.run).speaking(tokenizer_of(self.metadata.get(TOKENIZER, "")))

    def close(self) -> None:
        """Free the model's memory now, in this thread, whoever still knows this object; nobody may run it any more."""
        self._runner.close()
        self._run = self._runner.run

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Array], options: Any = None) -> list[Array]:
        """Run the model, and tell the observer.

        Args:
            outputs: Names of the outputs to compute.
            feeds: Inputs by name; their type and rank were checked.
            options: ``ort.RunOptions``, by which another thread can end the run.

        Raises:
            InvalidRequestError: The values do not fit the model, such as two batch sizes that differ.
            TooLargeError: What they have the model compute takes more memory than it may have.
            InferenceFailedError: The model failed.
        """
        results = self.run_unobserved(outputs, feeds, options)
        if self.observer is not None:
            self.observer(outputs, feeds, results)
        return results

    def run_unobserved(self, outputs: Sequence[str], feeds: Mapping[str, Array], options: Any = None) -> list[Array]:
        """As :meth:`run`, for runs that mean nothing to another version, such as those with a cache of this one's."""
        marked = self.mark.byte
        self._running += 1  # no other thread gets in between: there is no call
        marked[0] = 1
        try:
            return self._run(outputs, feeds, options)
        except ort_errors.InvalidArgument as error:
            raise InvalidRequestError(f"the model does not take these inputs: {first_line(error)}") from error
        except Exception as error:  # ONNX Runtime's errors have no common base
            if isinstance(error, MemoryError) or any(sign in str(error) for sign in _OUT_OF_MEMORY):
                raise TooLargeError(_TOO_MUCH_MEMORY) from error
            raise InferenceFailedError(f"the model failed: {first_line(error)}") from error
        finally:
            self._running -= 1
            if not self._running:
                marked[0] = 0


def build_session(
    model: bytes | str,
    shapes: Mapping[str, Sequence[int]],
    threads: int,
    inline_budget: float,
    max_batch_rows: int = 1,
    open_session: Open = open_on_cpu,
    said: Batching | None = None,
    answer_bytes: int = MAX_ANSWER_BYTES,
) -> Session:
    """A warm session that knows whether it is fast enough for the event loop.

    Args:
        model: The ONNX file's content, or the path to it.
        shapes: Shapes by input to warm up with; others are made up.
        threads: Threads that one run may use.
        inline_budget: Seconds a run may take on the event loop; 0 to always use threads. On an accelerator it is
            always threads: the event loop would wait for a device that others may keep busy.
        max_batch_rows: Rows that may run together at most; 1 to run each request by itself.
        open_session: Decides which provider runs it.
        said: What somebody else found batching to do to it on one thread of a CPU; None where nobody did. It is
            believed as far as a run bears it out.
        answer_bytes: Largest outputs of one call.

    Raises:
        ArtefactRefusedError: The model cannot be served.
    """
    session = Session(model, threads, open_session)
    session.answer_bytes = answer_bytes
    _let_others_have_the_lock()
    if session.provider.is_accelerator:
        inline_budget = 0.0
        said = None
    # Without times only the warm-up tells whether it is fast enough for the event loop, and runs may be slow by chance.
    runs = WARM_UP_RUNS if said is None or said.profile is None else FEW_WARM_UP_RUNS
    try:
        session.inline_elements = session.warm_up(shapes, runs).inline_elements(inline_budget)
    except TooLargeError as error:
        session.close()
        raise ArtefactRefusedError("it takes more memory than one model may have here, even for one row") from error
    _let_others_have_the_lock()
    if said is None or max_batch_rows == 1 or not is_borne_out(session, said, shapes):
        said = measured_batching(session, shapes, max_batch_rows)
    session.batch_by(said, inline_budget)
    session.take_accelerator_seconds()  # no request's
    return session


def _let_others_have_the_lock() -> None:
    """Between two steps of a load, so that the event loop, if it waits for Python's lock, waits for one of them."""
    time.sleep(_WAKE_SECONDS)  # in a loader's thread; 0 would have the lock back before anybody is awake
