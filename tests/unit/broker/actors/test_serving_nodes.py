"""What a node is to an endpoint, by what its agent says of its inference server."""

from __future__ import annotations

from dataclasses import replace

from tiercel.broker.actors.node_messages import ServedStatus, ServingReported
from tiercel.broker.actors.serving_nodes import serving_node
from tiercel.broker.lifecycle.versions import WantedModel
from tiercel.core.nodes import Node


def test_a_version_is_refused_by_an_inference_server_that_answers_and_not_by_one_that_starts() -> None:
    node, wanted = Node("n1", 4.0, 2**30), [WantedModel("digits", "", 3, (3,))]
    said = ServingReported(served={("digits", ""): ServedStatus(0, "it is not running")}, copies={("digits", 3): "sha"})
    starting = serving_node(node, "digits", said, wanted, None, lost=False)
    assert (starting.refused, starting.has(3, "sha")) == ({}, True)
    for up in (replace(said, http="h:1"), replace(said, local_http="h:1")):
        answering = serving_node(node, "digits", up, wanted, None, lost=False)
        assert (answering.refused, answering.has(3, "sha")) == ({3: "it is not running"}, False)


def test_a_version_whose_files_are_not_there_is_lacked_and_not_refused() -> None:
    wanted = [WantedModel("digits", "", 3, (3,))]
    said = ServingReported("n2:1", "", {("digits", ""): ServedStatus(0, "The files of version 3 are not here")})
    lacking = serving_node(Node("n2", 4.0, 2**30), "digits", said, wanted, None, lost=False)
    assert (lacking.refused, lacking.failed, lacking.has(3, "sha")) == ({}, {}, False)
