"""The seam between a session and ONNX Runtime: inputs by name to outputs in order, in the way that suits the device.

Chosen once, when a version is loaded, so that a run asks nothing: :class:`PlainRunner` for the CPU,
:class:`Bfloat16Runner` for types that NumPy lacks, :class:`BoundRunner` where a device copies from and to buffers that
are kept. All give the same numbers and raise the same errors (tests/contract/serving/test_runners.py).
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import onnxruntime as ort

from tiercel.core.errors import UnavailableError
from tiercel.serving.runtime.bfloat16 import run_with_bfloat16
from tiercel.serving.runtime.specs import first_line
from tiercel.serving.tensors import BY_ONNX, Array

_logger = logging.getLogger(__name__)

# As strict as any type needs, and whole lines of the CPU's cache.
_ALIGNMENT = 64
MAX_BUFFER_BYTES = 64 * 1024**2
"""Bytes of a run at most that go through a buffer: what is pinned is lost to everybody else on the machine."""
_LEAST_BUFFER_BYTES = 64 * 1024


Run = Callable[[Sequence[str], Mapping[str, Array], Any], list[Array]]
"""From names of outputs, inputs by name, and ``ort.RunOptions`` or None to outputs in that order.

Raises what ``ort.InferenceSession.run`` raises.
"""


class Runner(Protocol):
    """Runs one session, which it alone keeps; any thread may call it, several at a time."""

    @property
    def run(self) -> Run:
        """Runs the session."""

    def close(self) -> None:
        """Let session and buffers go; nobody may run it any more."""


def _closed(_outputs: Sequence[str], _feeds: Mapping[str, Array], _options: Any) -> list[Array]:
    raise RuntimeError("a session was used after it was closed")


class PlainRunner:
    """``InferenceSession.run`` itself, with nothing around it."""

    __slots__ = ("run",)

    def __init__(self, session: ort.InferenceSession) -> None:
        self.run: Run = session.run

    def close(self) -> None:
        """See :meth:`Runner.close`."""
        self.run = _closed


class Bfloat16Runner:
    """For sessions that take or give BF16."""

    __slots__ = ("run",)

    def __init__(self, session: ort.InferenceSession) -> None:
        self.run: Run = partial(run_with_bfloat16, session)

    def close(self) -> None:
        """See :meth:`Runner.close`."""
        self.run = _closed


class Buffers(Protocol):
    """Where the bytes of inputs and outputs lie while a device copies them."""

    def allocate(self, size: int) -> Array:
        """``size`` bytes."""

    def free(self, array: Array) -> None:
        """Let them go."""


class BoundRunner:
    """Binds inputs and outputs to a buffer that is kept from run to run; one run at a time, see :class:`SerialRunner`.

    What cannot be bound runs plainly, in here: strings, tensors without elements, outputs whose shape does not follow
    from the inputs' shapes, and runs of more than :data:`MAX_BUFFER_BYTES`.
    """

    def __init__(self, session: ort.InferenceSession, buffers: Buffers) -> None:
        self._plainly: Run = session.run
        self._shapes = _Shapes(session)
        self._slot = _Slot(session, buffers)
        self._is_given_up = not self._shapes.may_follow

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Array], options: Any) -> list[Array]:
        """See :attr:`Runner.run`."""
        shapes = None if self._is_given_up else self._shapes.of(outputs, feeds)
        if shapes is None or _bytes(feeds, shapes) > MAX_BUFFER_BYTES:
            return self._plainly(outputs, feeds, options)
        try:
            return self._slot.run(feeds, shapes, options)
        except (RuntimeError, UnavailableError) as error:
            # A bound run does not tell bad inputs from a model that failed; a plain one does. If that succeeds, the
            # model does not keep to the shapes that it declares, or there is no memory for the buffer.
            results = self._plainly(outputs, feeds, options)
            self._is_given_up = True
            _logger.warning("A model is run without buffers of its own from now on: %s", first_line(error))
            return results

    def close(self) -> None:
        """See :meth:`Runner.close`."""
        self._is_given_up, self._plainly = True, _closed
        self._slot.close()


class SerialRunner:
    """Lets one run at a time through to another runner, and measures how long they are in there.

    For a session on an accelerator: batches fill a device, not threads; its arena stays as large as one run makes it;
    and its runs share one stream. Its time is what the device was kept for this model, copies included.
    """

    def __init__(self, inner: Runner, clock: Callable[[], float] = time.perf_counter) -> None:
        self._inner = inner
        self._clock = clock
        self._turn = threading.Lock()
        # Apart from the turn: whoever asks for seconds does not wait for a run to end.
        self._count = threading.Lock()
        self._seconds = 0.0

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Array], options: Any) -> list[Array]:
        """See :attr:`Runner.run`."""
        with self._turn:
            begin = self._clock()
            try:
                return self._inner.run(outputs, feeds, options)
            finally:
                seconds = self._clock() - begin
                with self._count:
                    self._seconds += seconds

    def take_seconds(self) -> float:
        """Seconds of all runs since the last call; several threads that ask get each of them once."""
        with self._count:
            seconds, self._seconds = self._seconds, 0.0
        return seconds

    def close(self) -> None:
        """See :meth:`Runner.close`."""
        with self._turn:
            self._inner.close()


class _Bound:
    """An output as it will be: name, type and shape."""

    __slots__ = ("dtype", "name", "shape", "size")

    def __init__(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.size = math.prod(shape) * dtype.itemsize


class _Shapes:
    """The shapes of outputs by those of inputs, as far as the model declares them by named axes."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self._inputs = {each.name: tuple(each.shape) for each in session.get_inputs()}
        named = {axis for shape in self._inputs.values() for axis in shape if isinstance(axis, str)}
        self._outputs: dict[str, tuple[np.dtype[Any], tuple[int | str, ...]]] = {}
        for each in session.get_outputs():
            kind = BY_ONNX.get(each.type)
            follows = all(isinstance(axis, int) or axis in named for axis in each.shape)
            if kind is not None and not kind.is_bytes and follows:
                self._outputs[each.name] = (kind.dtype, tuple(each.shape))
        takes_strings = any(each.type == "tensor(string)" for each in session.get_inputs())
        self.may_follow = bool(self._outputs) and not takes_strings

    def of(self, outputs: Sequence[str], feeds: Mapping[str, Array]) -> list[_Bound] | None:
        """Outputs as they will be; None where that cannot be said, or something has no elements."""
        axes: dict[str, int] = {}
        for name, array in feeds.items():
            declared = self._inputs.get(name)
            if declared is None or len(declared) != array.ndim or not array.size:
                return None
            for axis, size in zip(declared, array.shape, strict=True):
                if isinstance(axis, str) and axes.setdefault(axis, size) != size:
                    return None
        found: list[_Bound] = []
        for name in outputs:
            known = self._outputs.get(name)
            if known is None:
                return None
            dtype, declared = known
            shape = tuple(axis if isinstance(axis, int) else axes.get(axis, 0) for axis in declared)
            if not all(shape):
                return None
            found.append(_Bound(name, dtype, shape))
        return found


class _Slot:
    """A binding and its buffer, for one run at a time."""

    def __init__(self, session: ort.InferenceSession, buffers: Buffers) -> None:
        self._session: ort.InferenceSession | None = session
        self._binding: ort.IOBinding | None = session.io_binding()
        self._buffers = buffers
        self._memory: Array | None = None

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[_Bound], options: Any) -> list[Array]:
        """Copy inputs in, run, copy outputs out."""
        session, binding = self._session, self._binding
        if session is None or binding is None:
            raise RuntimeError("a session was used after it was closed")
        sizes = [_aligned(feed.nbytes) for feed in feeds.values()] + [_aligned(output.size) for output in outputs]
        memory = self._at_least(sum(sizes), binding)
        start = 0
        for (name, feed), size in zip(feeds.items(), sizes, strict=False):
            view = memory[start : start + feed.nbytes].view(feed.dtype).reshape(feed.shape)
            np.copyto(view, feed)
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(view))
            start += size
        views: list[Array] = []
        binding.clear_binding_outputs()
        for output, size in zip(outputs, sizes[len(feeds) :], strict=True):
            view = memory[start : start + output.size].view(output.dtype).reshape(output.shape)
            binding.bind_output(output.name, "cpu", 0, output.dtype, output.shape, view.ctypes.data)
            views.append(view)
            start += size
        binding.synchronize_inputs()
        session.run_with_iobinding(binding, options)
        binding.synchronize_outputs()
        return [view.copy() for view in views]

    def close(self) -> None:
        """Let the session and the buffer go."""
        binding, self._session, self._binding = self._binding, None, None
        if binding is not None:
            self._let_go(binding)

    def _at_least(self, size: int, binding: ort.IOBinding) -> Array:
        """A buffer with room for ``size`` bytes: the one there is, or one that is at least twice as large."""
        memory = self._memory
        if memory is None or memory.nbytes < size:
            wanted = max(size, _LEAST_BUFFER_BYTES, 0 if memory is None else 2 * memory.nbytes)
            self._let_go(binding)
            memory = self._memory = self._buffers.allocate(wanted)
        return memory

    def _let_go(self, binding: ort.IOBinding) -> None:
        """Free the buffer, and first whatever is bound to it."""
        binding.clear_binding_inputs()
        binding.clear_binding_outputs()
        memory, self._memory = self._memory, None
        if memory is not None:
            self._buffers.free(memory)


def _bytes(feeds: Mapping[str, Array], outputs: Sequence[_Bound]) -> int:
    return sum([feed.nbytes for feed in feeds.values()]) + sum([output.size for output in outputs])


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
