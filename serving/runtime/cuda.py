"""What CUDA's runtime library is asked for beside ONNX Runtime: pinned memory, a stream with priority, free memory.

ONNX Runtime's CUDA provider brings that library along, so ctypes reaches it without a further dependency. Everything
blocks. Names and numbers are those of ``driver_types.h`` and ``cuda_runtime_api.h``.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import threading
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnxruntime as ort

from tiercel.core.errors import UnavailableError
from tiercel.serving.runtime.providers import Provider
from tiercel.serving.tensors import Array

_CUDA_STREAM_NON_BLOCKING = 1
_CUDA_HOST_ALLOC_PORTABLE = 1
_OVERLAID = (
    "onnxruntime lies over onnxruntime-gpu, since both go by one name; uninstall onnxruntime, then install "
    "onnxruntime-gpu with --force-reinstall --no-deps"
)


class Library(Protocol):
    """What the installed ONNX Runtime and the machine offer. Any thread may ask; all of it blocks."""

    def problem(self, provider: Provider) -> str:
        """Why sessions cannot run on this provider, in one sentence; empty where they can."""

    def is_expected(self, provider: Provider) -> bool:
        """Whether something was installed to have it, so that its absence is worth a word."""

    def cuda(self, device: int) -> Cuda:
        """CUDA's runtime on one of its devices.

        Raises:
            UnavailableError: It cannot be used.
        """


class Cuda(Protocol):
    """The part of CUDA's runtime that is needed here, on one device."""

    def free_bytes(self) -> int:
        """Bytes of the device's memory that nobody has; other programs' come and go."""

    def stream(self) -> int:
        """A new stream whose kernels go ahead of those with the default priority; its address."""

    def end_stream(self, stream: int) -> None:
        """Let a stream go; nothing may run on it any more."""

    def allocate_host(self, size: int) -> Array:
        """``size`` bytes of pinned memory of the host, which the device reads and writes without a copy in between."""

    def free_host(self, array: Array) -> None:
        """Let memory of :meth:`allocate_host` go; nobody may look at it any more."""


class InstalledLibrary:
    """The ONNX Runtime that is installed here, as it is found when somebody first asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runtime: Any = None
        self._problem: str | None = None
        self._has_gpu_package = any(metadata.distributions(name="onnxruntime-gpu"))

    def is_expected(self, provider: Provider) -> bool:
        """See :meth:`Library.is_expected`."""
        return provider.ort_name in ort.get_available_providers() or (provider.is_accelerator and self._has_gpu_package)

    def problem(self, provider: Provider) -> str:
        """See :meth:`Library.problem`."""
        if provider.ort_name not in ort.get_available_providers():
            if self._has_gpu_package:
                return _OVERLAID
            return f"onnxruntime {ort.__version__} was built without {provider.ort_name}; install onnxruntime-gpu"
        if not provider.is_accelerator:
            return ""
        with self._lock:
            if self._problem is None:
                self._problem = self._load()
            return self._problem

    def cuda(self, device: int) -> Cuda:
        """See :meth:`Library.cuda`."""
        problem = self.problem(Provider.CUDA)
        if problem:
            raise UnavailableError(problem)
        return CudaRuntime(self._runtime, device)

    def _load(self) -> str:
        """Load what the provider needs as it would itself, to hear the loader's message; why it cannot, or nothing."""
        with contextlib.redirect_stdout(io.StringIO()):  # it prints what it does not find
            ort.preload_dlls()
        folder = Path(ort.__file__).parent / "capi"
        try:
            ctypes.CDLL(str(folder / "libonnxruntime_providers_shared.so"), mode=ctypes.RTLD_GLOBAL)
            ctypes.CDLL(str(folder / "libonnxruntime_providers_cuda.so"))
            self._runtime = ctypes.CDLL(f"libcudart.so.{ort.cuda_version.split('.')[0]}")
        except OSError as error:
            return f"CUDA's libraries cannot be loaded: {error}"
        return device_problem(self._runtime)


def device_problem(runtime: Any) -> str:
    """Why CUDA shows no device to this process, or nothing where it does."""
    count = ctypes.c_int(0)
    code = runtime.cudaGetDeviceCount(ctypes.byref(count))
    if code:
        return f"CUDA has no device: {_message(runtime, code)}"
    return "" if count.value else "CUDA shows no device to this process; see CUDA_VISIBLE_DEVICES"


class CudaRuntime:
    """:class:`Cuda` by ``libcudart``."""

    def __init__(self, runtime: Any, device: int) -> None:
        self._runtime = runtime
        self._device = device

    def free_bytes(self) -> int:
        """See :meth:`Cuda.free_bytes`."""
        free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
        self._call("cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def stream(self) -> int:
        """See :meth:`Cuda.stream`."""
        least, greatest, stream = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_void_p(None)
        self._call("cudaDeviceGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
        flags = ctypes.c_uint(_CUDA_STREAM_NON_BLOCKING)
        self._call("cudaStreamCreateWithPriority", ctypes.byref(stream), flags, greatest)
        return stream.value or 0

    def end_stream(self, stream: int) -> None:
        """See :meth:`Cuda.end_stream`."""
        self._call("cudaStreamDestroy", ctypes.c_void_p(stream))

    def allocate_host(self, size: int) -> Array:
        """See :meth:`Cuda.allocate_host`."""
        pointer = ctypes.c_void_p(None)
        flags = ctypes.c_uint(_CUDA_HOST_ALLOC_PORTABLE)
        self._call("cudaHostAlloc", ctypes.byref(pointer), ctypes.c_size_t(size), flags)
        memory = (ctypes.c_uint8 * size).from_address(pointer.value or 0)
        return np.frombuffer(memoryview(memory), np.uint8)

    def free_host(self, array: Array) -> None:
        """See :meth:`Cuda.free_host`."""
        self._call("cudaFreeHost", ctypes.c_void_p(array.ctypes.data))

    def _call(self, name: str, *arguments: object) -> None:
        """Call a function of the runtime for this device; which device is meant is up to each thread."""
        self._check("cudaSetDevice", self._runtime.cudaSetDevice(ctypes.c_int(self._device)))
        self._check(name, getattr(self._runtime, name)(*arguments))

    def _check(self, name: str, code: int) -> None:
        if code:
            raise UnavailableError(f"{name} failed: {_message(self._runtime, code)}")


def _message(runtime: Any, code: int) -> str:
    runtime.cudaGetErrorString.restype = ctypes.c_char_p
    return f"{runtime.cudaGetErrorString(code).decode()} (error {code})"
