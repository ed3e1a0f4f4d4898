from __future__ import annotations

import pytest

from tiercel.core.errors import SetupError
from tiercel.trainer_agent.accelerators.contract import Accelerator
from tiercel.trainer_agent.accelerators.serving_reserve import ServingReserve, reserve

GIB = 1024**3
FIRST, SECOND = Accelerator("GPU-1", "card", 80 * GIB), Accelerator("GPU-2", "card", 40 * GIB)


def test_nobody_has_said_how_much() -> None:
    usual = reserve((FIRST, SECOND), None, can_serve=True)

    assert usual == ServingReserve("GPU-1", 10 * GIB)
    assert (usual.left_of(FIRST), usual.left_of(SECOND)) == (70 * GIB, 40 * GIB)
    assert reserve((FIRST,), None, can_serve=False) == reserve((), None, can_serve=True) == ServingReserve()


def test_what_was_asked_for_is_set_aside() -> None:
    assert reserve((FIRST, SECOND), 4 * GIB, can_serve=False) == ServingReserve("GPU-1", 4 * GIB)
    assert reserve((FIRST,), 0, can_serve=True) == ServingReserve()


@pytest.mark.parametrize("accelerators", [(), (FIRST,)])
def test_what_is_not_there_cannot_be(accelerators: tuple[Accelerator, ...]) -> None:
    with pytest.raises(SetupError, match="--serving-accelerator-memory"):
        reserve(accelerators, 80 * GIB, can_serve=True)


def test_the_server_sees_its_own_accelerator_only() -> None:
    assert ServingReserve("GPU-1", 4 * GIB).environment() == {
        "CUDA_VISIBLE_DEVICES": "GPU-1",
        "TIERCEL_SERVING_ACCELERATOR_MEMORY": str(4 * GIB),
    }
    assert ServingReserve().environment() == {"CUDA_VISIBLE_DEVICES": "", "TIERCEL_SERVING_PROVIDERS": "cpu"}
