"""The calls to CUDA's runtime, against a stand-in for ``libcudart``: there is no device here."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tiercel.core.errors import UnavailableError
from tiercel.serving.runtime.cuda import CudaRuntime, device_problem
from tiercel.serving.runtime.sessions import PinnedBuffers

OUT_OF_MEMORY = 2


class ErrorString:
    """``cudaGetErrorString``, whose result has to be declared."""

    restype: Any = ctypes.c_int

    def __call__(self, code: int) -> bytes:
        assert self.restype is ctypes.c_char_p
        return {OUT_OF_MEMORY: b"out of memory", 35: b"CUDA driver version is insufficient"}[code]


class StandInRuntime:
    """``libcudart`` with one device; ``fails`` names a function and the code that it returns."""

    def __init__(self, devices: int = 1, fails: dict[str, int] | None = None) -> None:
        self.devices = devices
        self.fails = fails or {}
        self.calls: list[tuple[str, tuple[int, ...]]] = []
        self.memory: dict[int, Any] = {}
        self.cudaGetErrorString = ErrorString()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            values = tuple(each.value for each in arguments if hasattr(each, "value") and each.value is not None)
            self.calls.append((name, values))
            if name in self.fails:
                return self.fails[name]
            out = [each._obj for each in arguments if hasattr(each, "_obj")]
            if name == "cudaGetDeviceCount":
                out[0].value = self.devices
            elif name == "cudaMemGetInfo":
                out[0].value, out[1].value = 700, 1000
            elif name == "cudaDeviceGetStreamPriorityRange":
                out[0].value, out[1].value = 0, -5
            elif name == "cudaStreamCreateWithPriority":
                out[0].value = 4711
            elif name == "cudaHostAlloc":
                block = ctypes.create_string_buffer(arguments[1].value)
                self.memory[ctypes.addressof(block)] = block
                out[0].value = ctypes.addressof(block)
            elif name == "cudaFreeHost":
                del self.memory[arguments[0].value]
            return 0

        return call

    @property
    def named(self) -> list[str]:
        return [name for name, _ in self.calls]


def test_a_process_that_sees_no_device_is_told_why() -> None:
    assert device_problem(StandInRuntime()) == ""
    assert device_problem(StandInRuntime(0)) == "CUDA shows no device to this process; see CUDA_VISIBLE_DEVICES"
    old = StandInRuntime(fails={"cudaGetDeviceCount": 35})
    assert device_problem(old) == "CUDA has no device: CUDA driver version is insufficient (error 35)"


def test_every_call_is_for_the_device_that_is_meant() -> None:
    runtime = StandInRuntime()
    assert CudaRuntime(runtime, 3).free_bytes() == 700
    assert runtime.calls[0] == ("cudaSetDevice", (3,))
    assert runtime.named == ["cudaSetDevice", "cudaMemGetInfo"]


def test_a_stream_has_the_greatest_priority_and_waits_for_no_other() -> None:
    runtime = StandInRuntime()
    cuda = CudaRuntime(runtime, 0)
    assert cuda.stream() == 4711
    assert ("cudaStreamCreateWithPriority", (1, -5)) in runtime.calls  # non-blocking; smaller numbers are greater
    cuda.end_stream(4711)
    assert ("cudaStreamDestroy", (4711,)) in runtime.calls


def test_pinned_memory_is_an_array_and_goes_back() -> None:
    runtime = StandInRuntime()
    buffers = PinnedBuffers(CudaRuntime(runtime, 0))
    array = buffers.allocate(64)
    assert (array.nbytes, array.dtype) == (64, np.dtype(np.uint8))
    array[:] = 7
    (block,) = runtime.memory.values()
    assert bytes(block) == b"\x07" * 64
    buffers.free(array)
    assert not runtime.memory


def test_what_fails_says_what_and_why() -> None:
    cuda = CudaRuntime(StandInRuntime(fails={"cudaHostAlloc": OUT_OF_MEMORY}), 0)
    with pytest.raises(UnavailableError, match=r"cudaHostAlloc failed: out of memory \(error 2\)"):
        cuda.allocate_host(10)
    with pytest.raises(UnavailableError, match="cudaSetDevice failed: out of memory"):
        CudaRuntime(StandInRuntime(fails={"cudaSetDevice": OUT_OF_MEMORY}), 9).free_bytes()
