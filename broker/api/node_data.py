"""What agents tell of data sets, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.core.data_sets import MAX_OF_A_NODE, NodeData, is_data_name
from tiercel.core.errors import wrong_field
from tiercel.core.wire import from_proto

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tiercel.v1 import common_pb2, nodes_pb2


def data_of(hello: nodes_pb2.NodeHello) -> tuple[NodeData, ...]:
    """The data sets that an agent says its node has, by name.

    Raises:
        InvalidSpecError: There are too many, or jobs could not ask for one.
    """
    if len(hello.data) > MAX_OF_A_NODE:
        raise wrong_field("hello.data", f"are {len(hello.data)} data sets; a node has {MAX_OF_A_NODE} at most")
    for index, told in enumerate(hello.data):
        if not is_data_name(told.name):
            raise wrong_field(f"hello.data[{index}].name", f"{told.name!r} is not a data set's name")
    return _by_name(hello.data)


def data_now(beat: nodes_pb2.Heartbeat) -> tuple[NodeData, ...]:
    """The data sets that are there as of a heartbeat; what jobs cannot ask for is left out."""
    return _by_name(told for told in beat.data[:MAX_OF_A_NODE] if is_data_name(told.name))


def _by_name(told: Iterable[common_pb2.NodeData]) -> tuple[NodeData, ...]:
    found = {each.name: from_proto(NodeData, each) for each in told}
    return tuple(each for _, each in sorted(found.items()))
