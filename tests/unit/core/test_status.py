"""What is wrong with a cluster, told from what there is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tiercel.core.nodes import Drain
from tiercel.core.status import ClusterStatus, EndpointStatus, NodeStatus, WaitingJob

WELL = NodeStatus("n1", online=True, version="0.2.0", disk_free_bytes=50, disk_total_bytes=100)
ANSWERS = EndpointStatus("digits", "alice", 3, ("n1",), ("n1",))
WAITS = (WaitingJob("j1", "alice", "waits for a node"),)


def told(*nodes: NodeStatus, **rest: Any) -> list[tuple[str, str]]:
    status = replace(ClusterStatus("0.2.0", nodes=nodes), **rest)
    problems = status.problems()
    assert all(problem.action for problem in problems)
    assert [problem.to_json() for problem in problems] == status.to_json()["problems"]
    return [(problem.about, problem.what) for problem in problems]


def test_all_is_well_where_jobs_wait_and_a_node_is_drained() -> None:
    second = replace(WELL, id="n2", drain=Drain.MOVE)
    assert told(WELL, second, endpoints=(ANSWERS, EndpointStatus("new", "alice")), waiting=WAITS) == []


@pytest.mark.parametrize(
    ("node", "what"),
    [
        (replace(WELL, online=False, version="0.1.0"), "it is offline"),
        (replace(WELL, version="0.1.0"), "its agent is of version 0.1.0, the broker of 0.2.0"),
        (replace(WELL, disk_free_bytes=4), "4 % of its disk is free"),
        (
            replace(WELL, accelerator_problems=("A100: Xid 79",)),
            "nothing new is put on an accelerator: A100: Xid 79",
        ),
    ],
)
def test_a_node_that_needs_somebody(node: NodeStatus, what: str) -> None:
    assert told(node) == [("node n1", what)]


@pytest.mark.parametrize("node", [replace(WELL, version=""), replace(WELL, disk_free_bytes=0, disk_total_bytes=0)])
def test_what_a_node_does_not_say_is_no_problem(node: NodeStatus) -> None:
    assert told(node) == []


def test_an_artefact_store_that_is_away() -> None:
    found = told(WELL, store_problems={"it does not answer": 2, "no room": 1})
    assert found == [
        ("artefact store", "checkpoints of 2 jobs are not safe: it does not answer"),
        ("artefact store", "checkpoints of 1 job are not safe: no room"),
    ]


def test_an_endpoint_that_nobody_answers_for() -> None:
    away = replace(WELL, online=False)
    silent = replace(ANSWERS, answering=())
    assert told(WELL, endpoints=(silent,)) == [("endpoint digits", "nobody answers for it: nothing is loaded on n1")]
    assert told(away, endpoints=(silent,))[1] == ("endpoint digits", "nobody answers for it: node n1 is offline")
    two = replace(ANSWERS, nodes=("n1", "n2"))
    assert told(WELL, endpoints=(two,)) == [("endpoint digits", "it does not answer on n2")]
    held = replace(ANSWERS, problems=("on node n1: it took too much memory",))
    assert told(WELL, endpoints=(held,)) == [("endpoint digits", "on node n1: it took too much memory")]


def test_a_cluster_in_which_nothing_can_start() -> None:
    assert told() == [("cluster", "there is no node")]
    drained = replace(WELL, drain=Drain.WAIT)
    assert told(drained) == []
    assert told(drained, waiting=WAITS) == [("cluster", "jobs wait, and every node that is online is drained")]
