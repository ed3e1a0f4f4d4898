"""One suite over every way of seeing accelerators, the real library included where it finds a driver."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import pynvml
import pytest

from testing import fake_nvml
from testing.fake_nvml import FakeNvml, a100, h100_in_slices, old_card
from tiercel.trainer_agent.accelerators import nvml
from tiercel.trainer_agent.accelerators.contract import Accelerators, AcceleratorsUnavailableError
from tiercel.trainer_agent.accelerators.detect import detect
from tiercel.trainer_agent.accelerators.none import NoAccelerators
from tiercel.trainer_agent.accelerators.nvidia import NvidiaAccelerators
from tiercel.trainer_agent.accelerators.nvml import Nvml


def has_driver() -> bool:
    """Whether the real library finds one in this machine."""
    try:
        NvidiaAccelerators(pynvml).close()
    except AcceleratorsUnavailableError:
        return False
    return True


WAYS: dict[str, Callable[[], Accelerators]] = {
    "none": NoAccelerators,
    "a100": lambda: NvidiaAccelerators(FakeNvml(a100())),
    "slices": lambda: NvidiaAccelerators(FakeNvml(h100_in_slices())),
    "old": lambda: NvidiaAccelerators(FakeNvml(old_card())),
    "several": lambda: NvidiaAccelerators(FakeNvml(old_card(), h100_in_slices(), a100())),
}
if has_driver():
    WAYS["real"] = lambda: NvidiaAccelerators(pynvml)


@pytest.fixture(params=sorted(WAYS))
def accelerators(request: pytest.FixtureRequest) -> Iterator[Accelerators]:
    found = WAYS[request.param]()
    yield found
    found.close()


def test_accelerators_have_names_and_memory(accelerators: Accelerators) -> None:
    ids = [accelerator.id for accelerator in accelerators.listed]
    assert len(set(ids)) == len(ids)
    for accelerator in accelerators.listed:
        assert accelerator.id.startswith(("GPU-", "MIG-"))
        assert accelerator.name
        assert accelerator.memory_bytes > 1 << 30


def test_each_look_reads_every_accelerator_in_their_order(accelerators: Accelerators) -> None:
    listed = accelerators.listed
    for _ in range(3):
        readings = accelerators.look()
        assert [reading.accelerator_id for reading in readings] == [accelerator.id for accelerator in listed]
        assert accelerators.listed == listed


def test_readings_are_in_bounds(accelerators: Accelerators) -> None:
    accelerators.look()
    for accelerator, reading in zip(accelerators.listed, accelerators.look(), strict=True):
        for fraction in (reading.utilisation, reading.memory_utilisation):
            assert fraction is None or 0.0 <= fraction <= 1.0
        assert 0 <= reading.memory_used_bytes <= accelerator.memory_bytes
        for pid, use in reading.processes.items():
            assert pid > 0
            assert 0 <= use.memory_bytes <= accelerator.memory_bytes
            assert use.busy_seconds is None or use.busy_seconds >= 0.0


def test_closing_twice_is_harmless(accelerators: Accelerators) -> None:
    accelerators.close()
    accelerators.close()


def test_the_real_library_without_a_driver_is_no_accelerator(caplog: pytest.LogCaptureFixture) -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        pass
    else:
        pynvml.nvmlShutdown()
        pytest.skip("there is a driver here")
    with caplog.at_level("INFO"):
        assert detect().listed == ()
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "no accelerator: NVML says: NVML Shared Library Not Found")
    ]


def used_names() -> list[str]:
    """The functions that are used of the library."""
    return [name for name in vars(Nvml) if name.startswith("nvml")]


@pytest.mark.parametrize("name", used_names())
def test_the_real_library_and_the_fake_have_the_functions_that_are_used(name: str) -> None:
    wanted = len(inspect.signature(getattr(Nvml, name)).parameters) - 1  # without self
    fake = inspect.signature(getattr(FakeNvml(), name)).parameters
    assert len(fake) == wanted
    of_real = inspect.signature(inspect.unwrap(getattr(pynvml, name))).parameters
    assert len(of_real) == wanted


def test_the_codes_are_those_of_the_real_library() -> None:
    ours = {
        "NVML_ERROR_NOT_SUPPORTED": nvml.NOT_SUPPORTED,
        "NVML_ERROR_TIMEOUT": nvml.TIMEOUT,
        "NVML_ERROR_GPU_IS_LOST": nvml.GPU_IS_LOST,
        "NVML_ERROR_RESET_REQUIRED": nvml.RESET_REQUIRED,
        "nvmlEventTypeXidCriticalError": nvml.XID_EVENT,
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": nvml.UNCORRECTED,
        "NVML_VOLATILE_ECC": nvml.SINCE_DRIVER_LOAD,
        "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION": nvml.RECOVERY_ACTION_FIELD,
        "nvmlMemory_v2": nvml.MEMORY_V2,
    }
    assert {name: getattr(pynvml, name) for name in ours} == ours


@pytest.mark.parametrize("code", sorted(fake_nvml.ERRORS))
def test_errors_of_the_fake_are_those_of_the_real_library(code: int) -> None:
    error = pynvml.NVMLError(code)
    assert nvml.code_of(error) == nvml.code_of(fake_nvml.NVMLError(code)) == code
    assert str(error) == str(fake_nvml.NVMLError(code))
