"""On which node all variants of an endpoint answer when theirs is lost, and what is left where they were."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tiercel.broker.lifecycle.serving_node import ServingNode
from tiercel.broker.lifecycle.variant_files import lacking, moved
from tiercel.core.checkpoints import Artefact
from tiercel.core.endpoints import Endpoint, Version

FILES = {number: f"{number:064x}" for number in range(1, 4)}


def version(number: int, variant: str, node_id: str = "", *, stored: bool = True) -> Version:
    kept = Artefact(FILES[number], 1) if stored else None
    return Version(number, "j", 1, "accuracy", 0.9, 0.0, FILES[number], None, variant, node_id, stored=kept)


SMALL, LARGE, NEWER = version(1, "small"), version(2, "large"), version(3, "large")
LIVE = {1: FILES[1], 3: FILES[3]}
ENDPOINT = Endpoint("digits", "alice", 4, (SMALL, LARGE, NEWER), "n1")
LOST, AWAY = ServingNode("n1", online=False, lost=True), ServingNode("n1", online=False)


def nodes(*given: ServingNode) -> dict[str, ServingNode]:
    return {node.id: node for node in given}


def test_all_that_is_stored_goes_to_one_node_that_is_able_and_the_first_one_is_told() -> None:
    full, leaving = ServingNode("n2", takes=False), ServingNode("n3", leaving=True)
    busy, failing = ServingNode("n4", crowd=3), ServingNode("n5", failed={1: "its disk is full"})
    found = moved(ENDPOINT, nodes(LOST, full, leaving, busy, failing, ServingNode("n6", crowd=1)))
    assert found.node_id == "n6"
    assert {found.node_of(each) for each in found.versions} == {"n6"}
    assert found.left == (("n1", "large"), ("n1", "small"))
    assert moved(found, nodes(LOST, ServingNode("n6", copies=LIVE))) is found


@pytest.mark.parametrize(
    ("endpoint", "known"),
    [
        (ENDPOINT, nodes(AWAY, ServingNode("n2"))),
        (ENDPOINT, nodes(ServingNode("n1"), ServingNode("n2"))),
        (ENDPOINT, nodes(LOST)),
        (replace(ENDPOINT, versions=(SMALL, LARGE, version(3, "large", stored=False))), nodes(LOST, ServingNode("n2"))),
        (replace(ENDPOINT, versions=(replace(SMALL, variant=""),)), nodes(LOST, ServingNode("n2"))),
        (replace(ENDPOINT, versions=()), nodes(LOST, ServingNode("n2"))),
    ],
)
def test_it_stays_while_its_node_may_be_back_soon_or_nobody_else_could_answer(
    endpoint: Endpoint, known: dict[str, ServingNode]
) -> None:
    assert moved(endpoint, known) is endpoint


def test_what_the_store_lacks_is_where_it_was() -> None:
    endpoint = replace(ENDPOINT, versions=(SMALL, version(2, "large", stored=False), NEWER))
    found = moved(endpoint, nodes(LOST, ServingNode("n2")))
    assert {each.version: found.node_of(each) for each in found.versions} == {1: "n2", 2: "n1", 3: "n2"}


def test_it_goes_back_to_the_node_that_has_the_files_while_the_other_one_waits_for_them() -> None:
    there = moved(ENDPOINT, nodes(LOST, ServingNode("n2")))
    back = ServingNode("n1", copies=LIVE)
    assert [each.version for each in lacking(there, nodes(back, ServingNode("n2")))] == [3, 1]
    found = moved(there, nodes(back, ServingNode("n2", copies={1: FILES[1]})))
    assert (found.node_id, found.left) == ("n1", (("n2", "large"), ("n2", "small")))
    assert moved(there, nodes(back, ServingNode("n2", copies=LIVE))) is there


def test_what_answers_elsewhere_follows_a_run_that_has_delivered_on_another_node() -> None:
    endpoint = replace(ENDPOINT, versions=tuple(replace(each, node_id="n2") for each in (SMALL, LARGE)))
    delivered = replace(endpoint, versions=(*endpoint.versions, replace(NEWER, node_id="n1")), node_id="n1")
    found = moved(delivered, nodes(ServingNode("n1", copies={3: FILES[3]}), ServingNode("n2", copies=FILES)))
    assert {found.node_of(each) for each in found.versions} == {"n1"}
    assert found.left == (("n2", "large"), ("n2", "small"))
    assert [each.version for each in lacking(found, nodes(ServingNode("n1", copies={3: FILES[3]})))] == [1]
