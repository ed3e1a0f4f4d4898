from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from testing.scheduling import GIB, job, node, snapshot, waiting_job
from tiercel.broker.scheduling.feasible import Room, can_hold
from tiercel.broker.scheduling.interface import JobView, NodeView
from tiercel.broker.scheduling.placement import jobs_by_node, place


def test_a_job_goes_to_the_node_that_then_has_the_fewest_jobs_per_core() -> None:
    nodes = [node("big", cpu_cores=8), node("small", cpu_cores=2)]
    running = [job(f"r{index}", node_id="big") for index in range(4)]
    # big would have 5/8 jobs a core, small 1/2
    assert place(snapshot([*running, waiting_job("w")], nodes)).node_of["w"] == "small"
    # big would have 4/8, small 1/2: the id decides
    assert place(snapshot([*running[:3], waiting_job("w")], nodes)).node_of["w"] == "big"


def test_jobs_are_taken_in_the_order_of_submission_with_ties_by_id() -> None:
    room_for_one = [node(memory_bytes=GIB)]
    jobs = [waiting_job("c", submitted_at=1), waiting_job("b", submitted_at=0), waiting_job("a", submitted_at=1)]
    assert place(snapshot(jobs, room_for_one)).node_of == {"b": "node"}
    assert place(snapshot(jobs[::2], room_for_one)).node_of == {"a": "node"}


def test_running_jobs_keep_their_node_and_their_memory_even_where_they_came_later() -> None:
    late = job("late", submitted_at=99, memory_bytes=3 * GIB)
    placement = place(snapshot([waiting_job("early", memory_bytes=2 * GIB), late], [node(memory_bytes=4 * GIB)]))
    assert placement.node_of == {"late": "node"}
    assert "asks for 2 GiB" in placement.waiting["early"]
    assert "most 1 GiB is free" in placement.waiting["early"]


def test_room_is_kept_for_the_first_that_finds_none_on_the_node_that_can_have_it_soonest() -> None:
    nodes = [node("a", memory_bytes=8 * GIB), node("b", memory_bytes=8 * GIB)]
    there = [job("a1", node_id="a", memory_bytes=6 * GIB), job("b1", node_id="b", memory_bytes=4 * GIB)]
    there = [replace(each, started_at=0.0) for each in there]
    large = waiting_job("large", submitted_at=1, memory_bytes=5 * GIB)
    # b lacks 1 GiB, a 3. A job of 3 GiB leaves 5 of b once b1 is over; one of 4 GiB does not, whatever is free now.
    small, other = (waiting_job(name, submitted_at=2, memory_bytes=3 * GIB) for name in ("small", "small2"))
    placement = place(snapshot([*there, large, small, other], nodes))
    assert placement.node_of["small"] == "b"
    assert placement.kept == {"b": large}
    medium = replace(small, resources=replace(small.resources, memory_bytes=4 * GIB))
    placement = place(snapshot([*there, large, medium], nodes))
    assert placement.waiting["small"] == (
        "waits for room: what is left of b is kept for job large, which goes before it"
    )
    # What b1 holds is free soon, and then large has its room: nobody takes it meanwhile.
    stopping = [there[0], replace(there[1], stopping=True)]
    assert "small2" not in place(snapshot([*stopping, large, small, other], nodes)).node_of
    assert not Room.beside(nodes[1], stopping[1:], large).can_take(medium)


def test_a_job_meant_for_a_node_stays_meant_for_it() -> None:
    meant = job("j", node_id="b", movable=True)
    assert place(snapshot([meant], [node("a"), node("b")])).node_of == {"j": "b"}
    assert place(snapshot([meant], [node("a")])).node_of == {"j": "a"}


def test_a_job_that_has_a_home_goes_nowhere_else() -> None:
    tied = replace(waiting_job("j"), home="a", endpoint="digits", variant="small")
    crowded = [job(f"r{index}", node_id="a") for index in range(3)]
    assert place(snapshot([*crowded, tied, waiting_job("free")], [node("a"), node("b")])).node_of["j"] == "a"
    assert not can_hold(node("b"), tied)
    placement = place(snapshot([tied], [node("b")]))
    assert placement.waiting == {"j": "waits for node a, where the variants of endpoint digits are"}


def test_a_job_goes_where_its_data_is_and_is_moved_nowhere_else() -> None:
    asking = replace(waiting_job("j"), data=frozenset({"a", "b"}))
    both = replace(node("both"), data=frozenset({"a", "b", "c"}))
    nodes = [both, node("empty"), replace(node("half"), data=frozenset({"a"}))]
    crowded = [job(f"r{index}", node_id="both") for index in range(3)]
    assert place(snapshot([*crowded, asking, waiting_job("free")], nodes)).node_of["j"] == "both"
    assert [each.id for each in nodes if Room(each).can_take(asking)] == ["both"]
    waiting = place(snapshot([asking, replace(waiting_job("k"), data=frozenset({"a"}))], nodes[1:]))
    assert waiting.waiting == {"j": "waits for a node with the data sets a, b: none that is online has all of them"}
    assert waiting.node_of == {"k": "half"}, "who asks for less is of another kind"


def test_a_job_whose_node_is_offline_is_neither_placed_nor_waiting() -> None:
    placement = place(snapshot([job("j", node_id="gone")]))
    assert (placement.node_of, placement.waiting) == ({}, {})


@pytest.mark.parametrize(
    ("waiting", "nodes", "words"),
    [
        (waiting_job("j"), [], "none is online"),
        (waiting_job("j", runtime="docker"), [node()], "can run jobs with docker"),
        (waiting_job("j"), [node(runtimes=())], "any runtime"),
        (waiting_job("j", runtime="docker", image="mine"), [node(runtimes=("docker",), images=["other:1"])], "mine"),
        (waiting_job("j", image="mine"), [node(runtimes=("docker", "process"), images=["other:1"])], "image mine"),
        (waiting_job("j", cpu_cores=5), [node(cpu_cores=4)], "asks for 5 cores; the largest node"),
        (waiting_job("j", memory_bytes=65 * GIB), [node()], "asks for 65 GiB of memory; the largest node"),
    ],
)
def test_a_waiting_job_is_told_the_first_need_that_no_node_meets(
    waiting: JobView, nodes: list[NodeView], words: str
) -> None:
    placement = place(snapshot([waiting], nodes))
    assert placement.node_of == {}
    assert words in placement.waiting["j"]


@pytest.mark.parametrize(
    ("image", "at_hand", "fits"),
    [
        ("mine", ["mine:latest"], True),
        ("mine:latest", ["mine"], True),
        ("host:5000/mine", ["host:5000/mine:latest"], True),
        ("mine:2", ["mine:1"], False),
        ("mine@sha256:00", ["mine"], False),
        ("mine", [], True),  # nothing is known of its images
    ],
)
def test_images_match_by_their_full_name(image: str, at_hand: list[str], fits: bool) -> None:
    view = waiting_job("j", runtime="docker", image=image)
    placement = place(snapshot([view], [node(runtimes=("docker",), images=at_hand)]))
    assert bool(placement.node_of) is fits


def test_an_image_does_not_matter_to_a_job_that_runs_as_a_process() -> None:
    view = waiting_job("j", runtime="process", image="mine")
    assert place(snapshot([view], [node(runtimes=("docker", "process"), images=["other"])])).node_of


def test_jobs_by_node_sorts_nodes_by_id_and_jobs_by_submission() -> None:
    jobs = [job("x", node_id="b", submitted_at=2), job("y", node_id="b", submitted_at=1), job("z", node_id="a")]
    view = snapshot(jobs, [node("b"), node("a"), node("empty")])
    groups = jobs_by_node(view, place(view))
    assert [(name, [entry.id for entry in group]) for name, group in groups.items()] == [
        ("a", ["z"]),
        ("b", ["y", "x"]),
    ]


def test_of_very_many_nodes_a_preference_chooses_among_the_least_crowded_and_the_one_that_is_meant() -> None:
    nodes = [node(f"n{index:03}") for index in range(100)]
    # The later half is empty; by the preference the last node comes first, whatever the crowd.
    crowd = [job(f"r{index:03}", node_id=f"n{index:03}", movable=False) for index in range(50)]
    meant = [waiting_job("x"), replace(waiting_job("y"), node_id="n007")]

    def last(entry: JobView, where: NodeView, jobs: Sequence[JobView]) -> tuple[float | str, ...]:
        return (where.id != entry.node_id, -int(where.id[1:]))

    found = place(snapshot([*crowd, *meant], nodes), last).node_of
    assert 50 <= int(found["x"][1:]) < 100
    assert found["y"] == "n007"
