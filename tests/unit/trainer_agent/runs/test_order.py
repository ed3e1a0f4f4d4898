"""What a run is started with: from the wire, to the disk and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.jobs import make_spec
from tiercel.core.errors import InvalidSpecError
from tiercel.core.jobs import Direction, JobSpec, Resources, Script
from tiercel.core.shares import AcceleratorShare
from tiercel.core.tiers import Tier
from tiercel.core.wire import to_proto
from tiercel.trainer_agent.limits.contract import CpuShare, Share
from tiercel.trainer_agent.runs.order import RunOrder
from tiercel.trainer_agent.wanted import run_order
from tiercel.v1 import common_pb2, nodes_pb2

SPEC = make_spec(
    module="",
    script=Script("train.py", b"pass"),
    direction=Direction.MIN,
    tiers=(Tier(0.5), Tier(0.3, 2.0, 60.0)),
    resources=Resources(2.0, 1 << 30, accelerators=1),
    arguments=("--lr", "0.1"),
    retry_exit_codes=(3,),
    warm=False,
)


def wanted(spec: JobSpec) -> nodes_pb2.WantedRun:
    return nodes_pb2.WantedRun(
        run_id="job-1",
        job_id="job",
        spec=to_proto(spec, common_pb2.JobSpec),
        share=common_pb2.Share(
            cpu_weight=0.5, accelerators=[common_pb2.AcceleratorShare(id="GPU-1", fraction=0.5, memory_bytes=7)]
        ),
        delivered_tiers=[1],
        retried=True,
    )


def nothing(_: str) -> bool:
    return False


def test_a_run_is_wanted_in_the_words_of_core() -> None:
    order = run_order(wanted(SPEC), nothing)
    assert order.spec == SPEC
    assert order.open_tiers == SPEC.tiers[1:]
    assert order.share == Share(CpuShare(0.5), (AcceleratorShare("GPU-1", 0.5, 7),))
    assert run_order(wanted(SPEC), lambda delivery_id: delivery_id == "job-tier-2").open_tiers == ()


def test_a_later_life_knows_all_of_it_but_the_scripts_text() -> None:
    order = run_order(wanted(SPEC), nothing)
    again = RunOrder.from_json("job-1", "job", order.to_json())
    assert again.spec.script == Script("train.py", b"")
    assert again.launch(Path("/job")) == order.launch(Path("/job"))
    assert (again.welcome(), again.goal()) == (order.welcome(), order.goal())
    assert again.retried


def test_what_an_earlier_version_wrote_is_understood() -> None:
    stored = {
        "spec": {
            "endpoint": "digits",
            "script": {"name": "train.py"},
            "metric": "accuracy",
            "direction": "DIRECTION_MAX",
            "tiers": [{"target": 0.9}, {"target": 0.97, "value": 2.0}],
            "resources": {"cpuCores": 1.0, "memoryBytes": "1073741824"},
            "maxEpochs": 40,
            "aFieldOfLater": 1,
        },
        "share": {
            "cpu": {"weight": 0.5, "cap_cores": None},
            "accelerators": [{"id": "GPU-1", "fraction": 1.0, "memory_bytes": 0, "cap": None}],
        },
        "open_tiers": [{"target": 0.97, "value": 2.0}],
    }
    welcome = RunOrder.from_json("job-1", "job", stored).welcome()
    assert ([tier.target for tier in welcome.tiers], welcome.max_epochs, welcome.keep_from) == ([0.97], 40, 0.9)
    assert welcome.direction == common_pb2.DIRECTION_MAX
    assert [held.id for held in welcome.accelerators] == ["GPU-1"]


@pytest.mark.parametrize("stored", [{}, {"spec": {"direction": "SIDEWAYS"}, "share": {}, "open_tiers": []}])
def test_what_is_no_order_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no order of a run"):
        RunOrder.from_json("job-1", "job", stored)


def test_a_spec_that_this_version_does_not_know_is_refused() -> None:
    strange = wanted(SPEC)
    strange.spec.direction = 7  # type: ignore[assignment]  # of a later version
    with pytest.raises(InvalidSpecError, match="direction: 7 is no Direction that this release of Tiercel knows"):
        run_order(strange, nothing)


def test_ranks_share_the_cores() -> None:
    spec = make_spec(resources=Resources(cpu_cores=5.0, accelerators=2))
    launch = run_order(wanted(spec), nothing).launch(Path("/job"))
    assert (launch.ranks, launch.threads) == (2, 2)
