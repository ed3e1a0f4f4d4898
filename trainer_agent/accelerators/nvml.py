"""The part of NVIDIA's management library that is used here, with types, and how it is loaded.

The library is ``nvidia-ml-py``, whose module is called ``pynvml``; the package ``pynvml`` is its deprecated wrapper.
Its functions: https://docs.nvidia.com/deploy/nvml-api/
"""

# ruff: noqa: D102, N802, N803 - the names are NVIDIA's, and so is what they mean

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

from tiercel.trainer_agent.accelerators.contract import AcceleratorsUnavailableError

Handle = Any
"""An accelerator or event set, as long as the library stays initialised."""

MEMORY_V2: Final = 0x02000028
"""The memory report that keeps the driver's own part apart (``nvmlMemory_v2``)."""

XID_EVENT: Final = 0x8
UNCORRECTED: Final = 1
SINCE_DRIVER_LOAD: Final = 0
RECOVERY_ACTION_FIELD: Final = 230
"""``NVML_FI_DEV_GET_GPU_RECOVERY_ACTION``, of drivers since R570."""

NOT_SUPPORTED: Final = 3
TIMEOUT: Final = 10
GPU_IS_LOST: Final = 15
RESET_REQUIRED: Final = 16

LASTING: Final = frozenset({GPU_IS_LOST, RESET_REQUIRED})
"""Codes that tell of the accelerator and not of the question; what else a driver says to a question that it need not
answer means that it has no answer now (not supported, no permission, no such function, a list that grew meanwhile)."""


class Nvml(Protocol):
    """What is used of the module ``pynvml``. Each function may raise :attr:`NVMLError`, whose ``value`` is a code."""

    @property
    def NVMLError(self) -> type[Exception]: ...

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Handle: ...
    def nvmlDeviceGetUUID(self, handle: Handle) -> str: ...
    def nvmlDeviceGetName(self, handle: Handle) -> str: ...
    def nvmlDeviceGetMemoryInfo(self, handle: Handle, version: int | None = None) -> Any: ...
    def nvmlDeviceGetUtilizationRates(self, handle: Handle) -> Any: ...
    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Handle) -> Sequence[Any]: ...
    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle: Handle) -> Sequence[Any]: ...
    def nvmlDeviceGetMPSComputeRunningProcesses_v3(self, handle: Handle) -> Sequence[Any]: ...
    def nvmlDeviceGetProcessUtilization(self, handle: Handle, timeStamp: int) -> Sequence[Any]: ...
    def nvmlDeviceGetMigMode(self, handle: Handle) -> Sequence[int]: ...
    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Handle) -> int: ...
    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Handle, index: int) -> Handle: ...
    def nvmlDeviceGetGpuInstanceId(self, handle: Handle) -> int: ...
    def nvmlDeviceGetTotalEccErrors(self, handle: Handle, errorType: int, counterType: int) -> int: ...
    def nvmlDeviceGetRemappedRows(self, handle: Handle) -> Sequence[int]: ...
    def nvmlDeviceGetFieldValues(self, handle: Handle, fieldIds: Sequence[int]) -> Sequence[Any]: ...
    def nvmlEventSetCreate(self) -> Handle: ...
    def nvmlEventSetFree(self, eventSet: Handle) -> None: ...
    def nvmlDeviceRegisterEvents(self, handle: Handle, eventTypes: int, eventSet: Handle) -> None: ...
    def nvmlEventSetWait_v2(self, eventSet: Handle, timeoutms: int) -> Any: ...


def load() -> Nvml:
    """The library's Python module; the driver's library itself is opened by its ``nvmlInit``.

    Raises:
        AcceleratorsUnavailableError: It is not installed.
    """
    try:
        return cast("Nvml", importlib.import_module("pynvml"))
    except ImportError:
        raise AcceleratorsUnavailableError("nvidia-ml-py is not installed (pip install nvidia-ml-py)") from None


def code_of(error: Exception) -> int:
    """The library's code in one of its errors."""
    return int(getattr(error, "value", 0))
