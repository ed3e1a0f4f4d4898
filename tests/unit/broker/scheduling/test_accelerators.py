"""Which accelerators a job gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from testing.scheduling import GIB, job, node, snapshot, waiting_job
from tiercel.broker.scheduling.accelerators import can_take, grants, without_leaving
from tiercel.broker.scheduling.interface import JobView, NodeView
from tiercel.broker.scheduling.placement import place
from tiercel.core.jobs import Resources
from tiercel.core.nodes import Accelerator
from tiercel.core.shares import AcceleratorShare, Share


def gpu_node(*gib: int, name: str = "node", problem: str = "", cpu_cores: float = 4.0) -> NodeView:
    """A node with accelerators of these sizes; the problem is that of the first one."""
    devices = tuple(
        Accelerator(f"{name}-{index}", "GPU", size * GIB, problem if index == 0 else "")
        for index, size in enumerate(gib)
    )
    return replace(node(name, cpu_cores=cpu_cores), accelerators=devices)


def asking(view: JobView, devices: int = 1, gib: int = 0) -> JobView:
    return replace(
        view,
        resources=replace(view.resources, cpu_cores=1.0, accelerators=devices, accelerator_memory_bytes=gib * GIB),
    )


def holding(view: JobView, *devices: str, gib: int) -> JobView:
    held = tuple(AcceleratorShare(device, 1.0, gib * GIB) for device in devices)
    share = Share(0.5, reason="before", accelerators=held)
    return replace(asking(view, len(devices), gib), share=share)


def chosen(on: NodeView, jobs: Sequence[JobView]) -> dict[str, list[str]]:
    return {name: [share.id for share in grant] for name, grant in grants(on, jobs).items()}


def test_the_device_with_the_fewest_jobs_is_chosen_and_of_those_alike_the_tightest() -> None:
    small = holding(job("small"), "node-0", gib=2)
    # An empty device before one that is shared, whatever room that has.
    assert chosen(gpu_node(16, 16), [small, asking(waiting_job("w"), gib=2)])["w"] == ["node-1"]
    # Two empty ones: the smaller one that is large enough.
    assert chosen(gpu_node(16, 24, 8), [asking(waiting_job("w"), gib=10)]) == {"w": ["node-0"]}
    # Where all are shared: the tightest of the least crowded.
    others = [holding(job("a"), "node-0", gib=2), holding(job("b"), "node-1", gib=9)]
    assert chosen(gpu_node(16, 16), [*others, asking(waiting_job("w"), gib=4)])["w"] == ["node-1"]
    assert chosen(gpu_node(16, 16), [*others, asking(waiting_job("w"), gib=8)])["w"] == ["node-0"]


def test_memory_is_what_was_asked_for_or_all_there_is() -> None:
    on = gpu_node(16, 24)
    assert grants(on, [asking(waiting_job("w"), gib=3)])["w"] == (AcceleratorShare("node-0", 1.0, 3 * GIB),)
    assert [share.memory_bytes for share in grants(on, [asking(waiting_job("w"), 2)])["w"]] == [16 * GIB, 24 * GIB]


def test_a_whole_device_is_an_empty_one() -> None:
    small, whole = holding(job("small"), "node-0", gib=1), asking(waiting_job("whole"))
    assert chosen(gpu_node(16), [small, whole]) == {"small": ["node-0"]}
    assert chosen(gpu_node(16, 16), [small, whole])["whole"] == ["node-1"]
    # And nobody comes to it afterwards.
    late = asking(waiting_job("x"), gib=1)
    assert "x" not in chosen(gpu_node(16), [holding(job("whole"), "node-0", gib=16), late])


def test_a_job_with_a_device_to_itself_stays_alone_also_where_the_device_has_more_memory_than_it_was_promised() -> None:
    """As after an agent that kept more of it for serving."""
    alone = replace(holding(job("whole"), "node-0", gib=8), resources=asking(job("whole")).resources)
    assert chosen(gpu_node(16), [alone, asking(waiting_job("x"), gib=1)]) == {"whole": ["node-0"]}


def test_devices_out_of_order_get_nobody_new_and_keep_who_is_there() -> None:
    on = gpu_node(16, 16, problem="fell off the bus")
    stays = holding(job("stays"), "node-0", gib=1)
    assert chosen(on, [stays, asking(waiting_job("w"), gib=1)]) == {"stays": ["node-0"], "w": ["node-1"]}
    assert "w" not in chosen(on, [stays, asking(waiting_job("w"), 2, gib=1)])


def test_a_job_goes_where_its_devices_are_least_crowded_and_not_where_none_are() -> None:
    nodes = [gpu_node(16, name="a"), gpu_node(16, 16, name="b", cpu_cores=2.0), node("c")]
    running = [holding(replace(job("r"), node_id="a"), "a-0", gib=1), *(job(f"c{n}", node_id="b") for n in range(9))]
    assert place(snapshot([*running, asking(waiting_job("w"), gib=1)], nodes)).node_of["w"] == "b"
    # One that uses none goes by jobs per core, as ever.
    assert place(snapshot([*running, waiting_job("w")], nodes)).node_of["w"] == "c"


def test_device_memory_is_never_promised_twice() -> None:
    jobs = [asking(waiting_job(f"w{number}", submitted_at=number), gib=6) for number in range(6)]
    placement = place(snapshot(jobs, [gpu_node(16, 8)]))
    assert sorted(placement.node_of) == ["w0", "w1", "w2"]
    assert placement.waiting["w3"] == (
        "waits for accelerator memory: it asks for 6 GiB on an accelerator, and other jobs hold it; "
        "it starts when they end"
    )


def test_a_policy_of_its_own_preference_sees_only_nodes_with_room_on_their_devices() -> None:
    nodes = [gpu_node(16, name="a"), gpu_node(16, name="b"), node("c")]
    holds = holding(replace(job("r"), node_id="b"), "b-0", gib=16)
    waiting = asking(waiting_job("w"), gib=1)
    placement = place(snapshot([holds, waiting], nodes), lambda job, node, jobs: (-ord(node.id),))
    assert placement.node_of["w"] == "a"


@pytest.mark.parametrize(
    ("waiting", "nodes", "words"),
    [
        (
            asking(waiting_job("j")),
            [node()],
            "asks for an accelerator; no node that could run it has one in good order",
        ),
        (asking(waiting_job("j"), 2), [gpu_node(16)], "2 accelerators of one node; no node that could run it has more"),
        (asking(waiting_job("j")), [gpu_node(16, problem="lost")], "has one in good order (lost)"),
        (asking(waiting_job("j"), gib=17), [gpu_node(16)], "asks for 17 GiB of accelerator memory; the largest"),
        (
            asking(waiting_job("j"), gib=17),
            [gpu_node(24, problem="lost", name="a"), gpu_node(16, name="b")],
            "the largest accelerator that it could use has 16 GiB (a larger one: lost)",
        ),
    ],
)
def test_a_job_that_no_node_has_devices_for_is_told_why(waiting: JobView, nodes: list[NodeView], words: str) -> None:
    assert words in place(snapshot([waiting], nodes)).waiting["j"]


def test_a_job_that_waits_for_a_device_of_its_own_is_told() -> None:
    placement = place(snapshot([holding(job("r"), "node-0", gib=1), asking(waiting_job("w"))], [gpu_node(16)]))
    assert placement.waiting["w"].startswith("waits for an accelerator to itself")


def test_a_migration_needs_devices_where_it_goes() -> None:
    on = gpu_node(16, name="b")
    mover = holding(replace(job("m"), node_id="a"), "a-0", gib=9)
    assert can_take(on, [], mover)
    assert not can_take(on, [asking(waiting_job("w"), gib=9)], mover)
    assert can_take(node("c"), [], job("cpu", node_id="a"))


def test_what_a_job_that_leaves_still_holds_is_given_to_nobody() -> None:
    on = gpu_node(16, 16)
    left = without_leaving(on, 3 * GIB, ["node-0"])
    assert left.memory_bytes == on.memory_bytes - 3 * GIB
    assert chosen(left, [asking(waiting_job("w"))]) == {"w": ["node-1"]}
    assert without_leaving(on, 0, []) is on


def test_jobs_without_accelerators_get_none() -> None:
    assert grants(gpu_node(16), [waiting_job("w"), job("r")]) == {}
    assert Resources().accelerators == 0
