from __future__ import annotations

from pathlib import Path

import pytest

from tiercel.core.shares import AcceleratorShare
from tiercel.trainer_agent.limits.mps import Mps, find_mps

GIB = 1 << 30
MPS = Mps(Path("/run/mps"))


def test_a_share_becomes_what_mps_takes_at_the_start() -> None:
    shares = (
        AcceleratorShare("GPU-a", 0.301, 10 * GIB),
        AcceleratorShare("GPU-b", 0.2),
        AcceleratorShare("c", 0.1, GIB),
    )
    assert MPS.environment(shares) == {
        "CUDA_MPS_PIPE_DIRECTORY": "/run/mps",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "31",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=10240M,2=1024M",
    }


def test_all_of_a_device_is_all_of_it() -> None:
    assert MPS.environment((AcceleratorShare("GPU-a", 1.0),))["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "100"


def test_without_accelerators_there_is_nothing_to_tell() -> None:
    assert MPS.environment(()) == {}


@pytest.mark.parametrize(("wanted", "found"), [(None, True), (True, True), (False, False)])
def test_the_operator_decides_and_else_the_directory(tmp_path: Path, wanted: bool | None, found: bool) -> None:
    mps = find_mps({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}, wanted=wanted)
    assert mps == (Mps(tmp_path) if found else None)


@pytest.mark.parametrize(("wanted", "found"), [(None, False), (True, True)])
def test_a_directory_that_is_not_there_yet(tmp_path: Path, wanted: bool | None, found: bool) -> None:
    mps = find_mps({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "none")}, wanted=wanted)
    assert (mps is not None) == found
