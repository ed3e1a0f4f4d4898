from __future__ import annotations

import sys

import pytest

from testing import fake_nvml
from testing.fake_nvml import FakeNvml, a100, h100_in_slices, old_card
from tiercel.core.errors import SetupError
from tiercel.trainer_agent.accelerators import nvml
from tiercel.trainer_agent.accelerators.contract import AcceleratorsUnavailableError
from tiercel.trainer_agent.accelerators.detect import detect


def test_all_there_are() -> None:
    assert len(detect("auto", lambda: FakeNvml(a100(), h100_in_slices())).listed) == 3


def test_none_asks_nobody() -> None:
    def load() -> FakeNvml:
        raise AssertionError("nobody is to be asked")

    assert detect("none", load).listed == ()


def test_those_that_are_named() -> None:
    slices = [accelerator.id for accelerator in detect("auto", lambda: FakeNvml(h100_in_slices())).listed]
    found = detect(",".join([slices[1], a100().uuid]), lambda: FakeNvml(a100(), h100_in_slices(), old_card()))
    assert [accelerator.id for accelerator in found.listed] == [a100().uuid, slices[1]], "in the order of the bus"
    with pytest.raises(SetupError, match=r"GPU-x is not there; the driver shows GPU-5a6b.*nvidia-smi -L"):
        detect("GPU-x", lambda: FakeNvml(a100()))


def test_without_a_driver_there_are_none_unless_they_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        assert detect("auto", lambda: FakeNvml(silence=fake_nvml.DRIVER_NOT_LOADED)).listed == ()
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "no accelerator: NVML says: Driver Not Loaded")
    ]
    with pytest.raises(SetupError, match="Driver Not Loaded"):
        detect("GPU-x", lambda: FakeNvml(silence=fake_nvml.DRIVER_NOT_LOADED))


def test_a_driver_without_a_card(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        assert detect("auto", FakeNvml).listed == ()
    assert caplog.messages == ["no accelerator: the driver shows none"]


def test_without_the_library_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(AcceleratorsUnavailableError, match="pip install nvidia-ml-py"):
        nvml.load()
    assert detect().listed == ()
