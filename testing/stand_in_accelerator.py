"""An accelerator that is not there: sessions run on the CPU, and memory is only counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tiercel.core.errors import ArtefactRefusedError, UnavailableError
from tiercel.serving.runtime.cuda import Cuda, Library
from tiercel.serving.runtime.providers import CudaOptions, Order, Provider, candidates
from tiercel.serving.runtime.runners import Runner, SerialRunner
from tiercel.serving.runtime.sessions import Devices, Opened, open_on_cpu
from tiercel.serving.tensors import Array


class StandInLibrary(Library):
    """A library that offers what it is told, with the problems it is told.

    Args:
        offered: What it was built with.
        problems: Why a provider cannot be used.
    """

    def __init__(self, offered: Sequence[Provider], problems: Mapping[Provider, str] | None = None) -> None:
        self._offered = offered
        self._problems = problems or {}

    def is_expected(self, provider: Provider) -> bool:
        return provider in self._offered

    def problem(self, provider: Provider) -> str:
        return self._problems.get(provider, "") if provider in self._offered else f"built without {provider.value}"

    def cuda(self, device: int) -> Cuda:
        raise UnavailableError("there is no CUDA here")


class _FreeingRunner:
    """A runner that says when it is closed."""

    def __init__(self, inner: Runner, on_close: Callable[[], None]) -> None:
        self._inner = inner
        self._on_close = on_close

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Array], options: Any) -> list[Array]:
        return self._inner.run(outputs, feeds, options)

    def close(self) -> None:
        self._inner.close()
        self._on_close()


class StandInDevices(Devices):
    """A device of ``size`` bytes on which every session takes ``each``; more than there is fails as CUDA fails.

    Attributes:
        each: Bytes of the next sessions.
        peak: Bytes that were taken at most.
        limits: Limits of arenas that sessions were opened with.
    """

    def __init__(self, size: int, each: int) -> None:
        super().__init__(StandInLibrary(tuple(Provider)), CudaOptions())
        self.size = size
        self.each = each
        self.taken = 0
        self.peak = 0
        self.limits: list[int] = []

    def usable(self, order: Order) -> tuple[Provider, ...]:
        return candidates(order, lambda _: "").providers

    def free_bytes(self) -> int:
        return self.size - self.taken

    def _open(
        self, provider: Provider, model: bytes | str, threads: int, memory_limit: int, arena_bytes: int
    ) -> Opened:
        if provider is Provider.CPU:
            return open_on_cpu(model, threads, arena_bytes)
        each = self.each
        self.limits.append(memory_limit)
        if each > self.free_bytes() or (memory_limit and each > memory_limit):
            raise ArtefactRefusedError("ONNX Runtime does not load it on CUDA: out of memory")
        opened = open_on_cpu(model, threads, arena_bytes)
        self.taken += each
        self.peak = max(self.peak, self.taken)
        serial = SerialRunner(_FreeingRunner(opened.runner, lambda: self._freed(each)))
        return Opened(Provider.CUDA, serial, opened.inputs, opened.outputs, serial.take_seconds)

    def _freed(self, size: int) -> None:
        self.taken -= size
