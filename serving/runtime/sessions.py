"""From a verified model to an ONNX Runtime session on a provider that works, with the runner that suits it. Blocks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as ort_core

from tiercel.core.errors import ArtefactRefusedError, UnavailableError
from tiercel.serving.runtime.bfloat16 import needs_bfloat16
from tiercel.serving.runtime.cuda import Cuda, Library
from tiercel.serving.runtime.providers import (
    CudaOptions,
    Order,
    Provider,
    Skipped,
    candidates,
    cuda_provider_options,
)
from tiercel.serving.runtime.runners import Bfloat16Runner, BoundRunner, PlainRunner, Runner, SerialRunner
from tiercel.serving.runtime.specs import first_line, tensor_specs
from tiercel.serving.tensors import Array, TensorSpec

_logger = logging.getLogger(__name__)

_CPU_MEMORY = ("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
# ONNX Runtime knows no limit for one session's memory, but one for the arena that is registered for all, and a session
# keeps the arena that it was made with. So each is made with an arena of its own, one session at a time.
_arena_turn = threading.Lock()


@dataclass(slots=True)
class Opened:
    """A session that is ready to run."""

    provider: Provider  # what runs it
    runner: Runner  # how it is run
    inputs: dict[str, TensorSpec]  # specifications by name
    outputs: dict[str, TensorSpec]  # specifications by name, in the model's order
    # Seconds that its accelerator was kept for it since the last call; None on the CPU.
    take_seconds: Callable[[], float] | None = None
    device: int = 0  # number of its device; 0 on the CPU
    metadata: Mapping[str, str] = field(default_factory=dict)  # what its file says beside the graph


Open = Callable[[bytes | str, int], Opened]
"""Opens a model, the content or the path to it, with so many threads; raises ArtefactRefusedError."""


def open_on_cpu(model: bytes | str, threads: int = 1, arena_bytes: int = 0) -> Opened:
    """A session on the CPU.

    From bytes it is built under Python's lock, tens of milliseconds for tens of megabytes; from a file it is not.

    Args:
        model: The ONNX file's content, or the path to it.
        threads: Threads that one run may use.
        arena_bytes: Bytes that its weights and all its runs together may take; 0 for no limit.

    Raises:
        ArtefactRefusedError: ONNX Runtime does not load the model, or it cannot be served.
    """
    try:
        session = _session(model, threads, [Provider.CPU.ort_name], arena_bytes)
    except Exception as error:  # ONNX Runtime's errors have no common base
        raise ArtefactRefusedError(f"ONNX Runtime does not load it: {first_line(error)}") from error
    inputs, outputs = _specs(session)
    runner = _runner(session, inputs, outputs, PlainRunner)
    return Opened(Provider.CPU, runner, inputs, outputs, metadata=_metadata(session))


class Devices:
    """Opens sessions on the first provider that works."""

    def __init__(self, library: Library, options: CudaOptions | None = None) -> None:
        self._library = library
        self._options = options if options is not None else CudaOptions()
        self._told: set[Skipped] = set()
        self._lock = threading.Lock()

    def usable(self, order: Order) -> tuple[Provider, ...]:
        """The providers of an order that can be used; a warning names the cause for others, once for each.

        Raises:
            ArtefactRefusedError: There is none.
        """
        found = candidates(order, self._library.problem)
        if not found.providers:
            causes = "; ".join(skipped.cause for skipped in found.skipped)
            raise ArtefactRefusedError(f"no provider that it may use works: {causes}; add cpu to --providers")
        for skipped in found.skipped:
            if not order.is_automatic or self._library.is_expected(skipped.provider):
                self._tell(skipped, found.providers[0])
        return found.providers

    def free_bytes(self) -> int:
        """Bytes of the accelerator's memory that nobody has; 0 where that cannot be said."""
        try:
            return self._library.cuda(self._options.device).free_bytes()
        except UnavailableError:
            return 0

    def open(
        self,
        model: bytes | str,
        threads: int,
        providers: tuple[Provider, ...],
        memory_limit: int = 0,
        arena_bytes: int = 0,
        name: str = "a model",
    ) -> Opened:
        """A session on the first of these providers that takes it; a warning names the cause for others.

        Args:
            model: The ONNX file's content, or the path to it.
            threads: Threads that one run may use.
            providers: Those of :meth:`usable`.
            memory_limit: Bytes of accelerator memory that its arena there may take; 0 for no limit.
            arena_bytes: Bytes of this machine's memory that its weights and all its runs together may take; 0 for no
                limit.
            name: What the warning calls it.

        Raises:
            ArtefactRefusedError: None takes it.
        """
        failed: list[Skipped] = []
        for provider in providers:
            try:
                opened = self._open(provider, model, threads, memory_limit, arena_bytes)
            except (ArtefactRefusedError, UnavailableError) as error:
                failed.append(Skipped(provider, error.message))
                continue
            for skipped in failed:  # only now is it known that the model is not to blame
                what = (name, provider.value, skipped.provider.value, skipped.cause)
                _logger.warning("%s runs on %s, not on %s: %s", *what)
            return opened
        raise ArtefactRefusedError(failed[-1].cause)

    def _open(
        self, provider: Provider, model: bytes | str, threads: int, memory_limit: int, arena_bytes: int
    ) -> Opened:
        if provider is Provider.CUDA:
            cuda = self._library.cuda(self._options.device)
            return open_on_cuda(model, threads, cuda, self._options, memory_limit, arena_bytes)
        return open_on_cpu(model, threads, arena_bytes)

    def _tell(self, skipped: Skipped, instead: Provider) -> None:
        with self._lock:
            is_news = skipped not in self._told
            self._told.add(skipped)  # as many as there are providers with problems
        if is_news:
            _logger.warning("Models run on %s, not on %s: %s", instead.value, skipped.provider.value, skipped.cause)


def open_on_cuda(
    model: bytes | str, threads: int, cuda: Cuda, options: CudaOptions, memory_limit: int, arena_bytes: int
) -> Opened:
    """A session on CUDA; operators that it lacks run on the CPU.

    Args:
        model: The ONNX file's content, or the path to it.
        threads: Threads that those operators may use.
        cuda: The runtime on the device that ``options`` name.
        options: What the provider is told.
        memory_limit: Bytes that its arena on the device may take; 0 for no limit.
        arena_bytes: Bytes of this machine's memory that it may take; 0 for no limit.

    Raises:
        ArtefactRefusedError: It does not run there, such as for want of memory.
        UnavailableError: CUDA fails.
    """
    stream = cuda.stream() if options.has_priority else 0
    told = cuda_provider_options(options, memory_limit, stream)
    try:
        session = _session(model, threads, [(Provider.CUDA.ort_name, told), Provider.CPU.ort_name], arena_bytes)
        if Provider.CUDA.ort_name not in session.get_providers():
            raise ArtefactRefusedError("ONNX Runtime left its CUDA provider out; its log says why")  # noqa: TRY301
        inputs, outputs = _specs(session)
    except ArtefactRefusedError:
        _end(cuda, stream)
        raise
    except Exception as error:  # ONNX Runtime's errors have no common base
        _end(cuda, stream)
        raise ArtefactRefusedError(f"ONNX Runtime does not load it on CUDA: {first_line(error)}") from error
    serial = SerialRunner(_runner(session, inputs, outputs, lambda each: BoundRunner(each, PinnedBuffers(cuda))))
    runner = _WithStream(serial, cuda, stream)
    return Opened(Provider.CUDA, runner, inputs, outputs, serial.take_seconds, options.device, _metadata(session))


class PinnedBuffers:
    """Memory of the host that the device reads and writes by itself."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda

    def allocate(self, size: int) -> Array:
        """See :meth:`~tiercel.serving.runtime.runners.Buffers.allocate`."""
        return self._cuda.allocate_host(size)

    def free(self, array: Array) -> None:
        """See :meth:`~tiercel.serving.runtime.runners.Buffers.free`."""
        self._cuda.free_host(array)


class _WithStream:
    """A runner whose session computes on a stream that goes with it."""

    __slots__ = ("_cuda", "_inner", "_stream", "run")

    def __init__(self, inner: Runner, cuda: Cuda, stream: int) -> None:
        self._inner = inner
        self._cuda = cuda
        self._stream = stream
        self.run = inner.run

    def close(self) -> None:
        """See :meth:`Runner.close`: the session first, since it ends with its stream still there."""
        self._inner.close()
        stream, self._stream = self._stream, 0
        _end(self._cuda, stream)


def _end(cuda: Cuda, stream: int) -> None:
    if stream:
        try:
            cuda.end_stream(stream)
        except UnavailableError as error:
            _logger.warning("A CUDA stream could not be ended: %s", error.message)


def _session(model: bytes | str, threads: int, providers: list[Any], arena_bytes: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # A spinning thread would take CPU from training for nothing.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Its own fallback would print and go on silently, in the middle of a request too; ours says why, and only here.
    make = partial(ort.InferenceSession, model, options, providers=providers, enable_fallback=0)
    return _with_an_arena(make, options, arena_bytes) if arena_bytes else make()


def _with_an_arena(
    make: Callable[[], ort.InferenceSession], options: ort.SessionOptions, arena_bytes: int
) -> ort.InferenceSession:
    options.add_session_config_entry("session.use_env_allocators", "1")
    with _arena_turn:
        _register_arena(arena_bytes)
        try:
            return make()
        finally:
            _register_arena(1)  # the session's memory is to go with the session


def _register_arena(most_bytes: int) -> None:
    """Have ONNX Runtime keep an empty arena for sessions to come; it lets go of the one before."""
    ort_core.create_and_register_allocator(ort.OrtMemoryInfo(*_CPU_MEMORY), ort.OrtArenaCfg({"max_mem": most_bytes}))


def _specs(session: ort.InferenceSession) -> tuple[dict[str, TensorSpec], dict[str, TensorSpec]]:
    return tensor_specs(session.get_inputs(), "input"), tensor_specs(session.get_outputs(), "output")


def _metadata(session: ort.InferenceSession) -> dict[str, str]:
    return dict(session.get_modelmeta().custom_metadata_map)


def _runner(
    session: ort.InferenceSession,
    inputs: dict[str, TensorSpec],
    outputs: dict[str, TensorSpec],
    otherwise: Callable[[ort.InferenceSession], Runner],
) -> Runner:
    if needs_bfloat16(inputs.values(), outputs.values()):
        return Bfloat16Runner(session)
    return otherwise(session)
