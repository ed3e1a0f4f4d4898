"""Accelerators between the wire and the broker's words."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from testing.jobs import make_spec
from tiercel.broker.actors.node_messages import AcceleratorStatus
from tiercel.broker.api.accelerators import MAX_PER_NODE, accelerator_statuses, accelerators_of
from tiercel.broker.api.translation import node_to_proto
from tiercel.core.errors import InvalidSpecError
from tiercel.core.jobs import Job, JobState
from tiercel.core.nodes import Accelerator, Node
from tiercel.core.runs import Move, Run
from tiercel.core.shares import AcceleratorShare, Share
from tiercel.v1 import nodes_pb2

TOLD = nodes_pb2.Accelerator(id="GPU-1", name="Made up", memory_bytes=80)
DEVICE = Accelerator("GPU-1", "Made up", 80)


def holding(fraction: float, memory_bytes: int, device: str = "GPU-1") -> Share:
    """A share of a device."""
    return Share(1.0, accelerators=(AcceleratorShare(device, fraction, memory_bytes),))


def running(share: Share, move: Move | None = None) -> Job:
    """A job that has it."""
    return Job("j1", "alice", make_spec(), 0.0, state=JobState.RUNNING, run=Run("j1", 1, "n1", share, move=move))


def test_devices_of_a_hello() -> None:
    second = nodes_pb2.Accelerator(id="GPU-2", memory_bytes=1, problem="lost")
    found = accelerators_of(nodes_pb2.NodeHello(accelerators=[TOLD, second]))
    assert found == (DEVICE, Accelerator("GPU-2", "", 1, "lost"))
    assert accelerators_of(nodes_pb2.NodeHello()) == ()


@pytest.mark.parametrize(
    ("told", "field"),
    [
        ([nodes_pb2.Accelerator(memory_bytes=1)], "hello.accelerators[0].id"),
        ([TOLD, TOLD], "hello.accelerators[1].id"),
        ([nodes_pb2.Accelerator(id="GPU-1")], "hello.accelerators[0].memory_bytes"),
        ([TOLD] * (MAX_PER_NODE + 1), "hello.accelerators"),
    ],
)
def test_devices_that_cannot_be_are_refused(told: list[nodes_pb2.Accelerator], field: str) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        accelerators_of(nodes_pb2.NodeHello(accelerators=told))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("told", "taken"), [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0), (-0.1, None), (1.5, None), (math.nan, None), (None, None)]
)
def test_a_utilisation_that_cannot_be_is_not_known(told: float | None, taken: float | None) -> None:
    beat = nodes_pb2.Heartbeat(accelerators=[nodes_pb2.AcceleratorUsage(id="GPU-1", utilisation=told, problem="hot")])
    assert accelerator_statuses(beat) == (AcceleratorStatus("GPU-1", taken, 0, "hot"),)


def test_a_device_adds_up_what_jobs_hold_of_it() -> None:
    elsewhere = running(holding(1.0, 7, "GPU-2"))
    jobs = [running(holding(0.5, 20)), running(holding(0.25, 30)), elsewhere, running(Share(1.0))]
    heard = {"GPU-1": AcceleratorStatus("GPU-1", 0.75, 33)}
    [message] = node_to_proto(Node("n1", 1.0, 1, accelerators=(DEVICE,)), jobs, heard).accelerators
    assert (message.id, message.name, message.memory_bytes) == ("GPU-1", "Made up", 80)
    assert (message.memory_reserved_bytes, message.jobs) == (50, 2)
    assert (message.memory_used_bytes, message.utilisation) == (33, 0.75)


def test_a_job_that_is_moved_holds_something_at_both_ends() -> None:
    job = running(holding(0.5, 20), Move("n2", holding(1.0, 30, "GPU-2")))
    for device, size in (("GPU-1", 20), ("GPU-2", 30)):
        [message] = node_to_proto(
            Node("n1", 1.0, 1, accelerators=(replace(DEVICE, id=device),)), [job], {}
        ).accelerators
        assert (message.memory_reserved_bytes, message.jobs) == (size, 1)


def test_what_is_not_known_of_a_device_is_not_told() -> None:
    ill = replace(DEVICE, problem="lost")
    [message] = node_to_proto(Node("n1", 1.0, 1, accelerators=(ill,)), [], {}).accelerators
    assert not message.HasField("utilisation")
    assert (message.memory_used_bytes, message.problem) == (0, "lost")
