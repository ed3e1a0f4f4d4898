from __future__ import annotations

import pytest

from tiercel.trainer_agent.inference_server.endpoint_shares import beside_training
from tiercel.trainer_agent.limits.contract import CpuShare


@pytest.mark.parametrize(
    ("share", "training", "told"),
    [
        (CpuShare(0.25), [], CpuShare(0.25)),  # nobody trains: nothing to leave
        (CpuShare(0.25), [4.0], CpuShare(0.25, 1.0)),
        (CpuShare(0.25), [2.0, 2.0, 2.0], CpuShare(0.25, 1.0)),  # more than the node has
        (CpuShare(0.25), [1.0], CpuShare(0.25, 3.0)),  # one job cannot use more than a core
        (CpuShare(1.0), [4.0], CpuShare(1.0)),
        (CpuShare(0.25, 2.0), [4.0], CpuShare(0.25, 2.0)),  # the policy's own cap stays
        (CpuShare(0.25, 0.5), [1.0], CpuShare(0.25, 0.5)),
    ],
)
def test_an_endpoint_leaves_training_its_part_and_no_core_idle(
    share: CpuShare, training: list[float], told: CpuShare
) -> None:
    assert beside_training({"digits": share}, training, node_cores=4.0) == {"digits": told}
