"""What agents tell of data sets."""

from __future__ import annotations

import pytest

from tiercel.broker.api.node_data import data_now, data_of
from tiercel.core.data_sets import MAX_OF_A_NODE, NodeData
from tiercel.core.errors import InvalidSpecError
from tiercel.v1 import common_pb2, nodes_pb2

TOLD = [common_pb2.NodeData(name="b"), common_pb2.NodeData(name="a", size_bytes=7)]
KNOWN = (NodeData("a", 7), NodeData("b"))


def test_what_is_told_is_known() -> None:
    assert data_of(nodes_pb2.NodeHello(data=TOLD)) == data_now(nodes_pb2.Heartbeat(data=TOLD)) == KNOWN


@pytest.mark.parametrize(
    ("names", "field"), [(["a", "../b"], "hello.data[1].name"), (["a"] * (MAX_OF_A_NODE + 1), "hello.data")]
)
def test_a_hello_that_cannot_be_is_refused(names: list[str], field: str) -> None:
    hello = nodes_pb2.NodeHello(data=[common_pb2.NodeData(name=name) for name in names])
    with pytest.raises(InvalidSpecError) as caught:
        data_of(hello)
    assert caught.value.field == field


def test_of_a_heartbeat_so_much_counts_as_can_be() -> None:
    many = [common_pb2.NodeData(name=f"d{number}") for number in range(1000)]
    assert len(data_now(nodes_pb2.Heartbeat(data=many))) == MAX_OF_A_NODE
    assert data_now(nodes_pb2.Heartbeat(data=[common_pb2.NodeData(name="\x1b"), *TOLD])) == KNOWN
