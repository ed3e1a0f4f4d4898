"""Which provider a session ends up on, and what is said of it; what the installed ONNX Runtime says by itself."""

from __future__ import annotations

import logging

import numpy as np
import onnxruntime as ort
import pytest

from testing import onnx_models
from testing.stand_in_accelerator import StandInDevices, StandInLibrary
from tiercel.core.errors import ArtefactRefusedError, UnavailableError
from tiercel.serving.runtime.cuda import InstalledLibrary
from tiercel.serving.runtime.providers import AUTOMATIC, Provider, read_order
from tiercel.serving.runtime.sessions import Devices, open_on_cpu

CPU, CUDA = Provider.CPU, Provider.CUDA
BOTH = read_order("cuda,cpu")
NO_LIBRARY = "CUDA's libraries cannot be loaded: libcublasLt.so.13: cannot open shared object file"


def said(log: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in log.records if record.levelno >= logging.WARNING]


def test_a_cause_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    devices = Devices(StandInLibrary([CUDA, CPU], {CUDA: NO_LIBRARY}))
    for _ in range(3):
        assert devices.usable(BOTH) == (CPU,)
        assert devices.usable(AUTOMATIC) == (CPU,)
    assert said(caplog) == [f"Models run on cpu, not on cuda: {NO_LIBRARY}"]


def test_a_library_without_cuda_is_worth_a_word_only_to_those_who_asked_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    devices = Devices(StandInLibrary([CPU]))
    assert devices.usable(AUTOMATIC) == (CPU,)
    assert not said(caplog)
    assert devices.usable(BOTH) == (CPU,)
    assert said(caplog) == ["Models run on cpu, not on cuda: built without cuda"]


def test_what_works_is_taken_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    assert Devices(StandInLibrary([CUDA, CPU])).usable(AUTOMATIC) == (CUDA, CPU)
    assert not said(caplog)


def test_without_any_provider_the_cause_is_the_answer() -> None:
    with pytest.raises(ArtefactRefusedError, match=r"works: CUDA's libraries .*libcublasLt.*; add cpu to --providers"):
        Devices(StandInLibrary([CUDA, CPU], {CUDA: NO_LIBRARY})).usable(read_order("cuda"))


def test_a_device_without_room_leaves_the_model_to_the_cpu(caplog: pytest.LogCaptureFixture) -> None:
    devices = StandInDevices(size=100, each=60)
    first = devices.open(onnx_models.plus(1.0), 1, (CUDA, CPU))
    second = devices.open(onnx_models.plus(2.0), 1, (CUDA, CPU))
    assert (first.provider, second.provider) == (CUDA, CPU)
    assert second.runner.run(["y"], {"x": np.zeros((1, 4), np.float32)}, None)[0].tolist() == [[2.0] * 4]
    assert said(caplog) == ["a model runs on cpu, not on cuda: ONNX Runtime does not load it on CUDA: out of memory"]
    with pytest.raises(ArtefactRefusedError, match="out of memory"):
        devices.open(onnx_models.plus(3.0), 1, (CUDA,))


def test_a_model_that_nothing_loads_is_not_held_against_the_device(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ArtefactRefusedError, match="ONNX Runtime does not load it"):
        StandInDevices(size=100, each=200).open(b"nonsense", 1, (CUDA, CPU))
    assert not said(caplog)


def test_a_session_on_the_cpu_says_so() -> None:
    opened = open_on_cpu(onnx_models.mlp(), 1)
    assert (opened.provider, opened.take_seconds, list(opened.inputs), list(opened.outputs)) == (
        CPU,
        None,
        ["x"],
        ["y"],
    )


def test_the_installed_library_runs_on_the_cpu() -> None:
    assert InstalledLibrary().problem(CPU) == ""


def test_a_package_that_lies_under_another_is_told_apart_from_one_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    monkeypatch.setattr("importlib.metadata.distributions", lambda **_: iter([object()]))
    assert Devices(InstalledLibrary()).usable(AUTOMATIC) == (CPU,)
    (warning,) = said(caplog)
    assert "onnxruntime lies over onnxruntime-gpu" in warning
    assert "--force-reinstall" in warning


@pytest.mark.skipif("CUDAExecutionProvider" in ort.get_available_providers(), reason="this onnxruntime has CUDA")
def test_the_installed_library_says_what_it_lacks() -> None:
    library = InstalledLibrary()
    assert "was built without CUDAExecutionProvider; install onnxruntime-gpu" in library.problem(CUDA)
    with pytest.raises(UnavailableError, match="was built without"):
        library.cuda(0)
    assert Devices(library).free_bytes() == 0
    assert Devices(library).usable(AUTOMATIC) == (CPU,)
