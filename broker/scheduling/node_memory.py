"""What was decided about nodes, so that those without news need not be decided about again.

In a large cluster few nodes have news between two decisions, and most of a decision's cost is making shares and reasons
that are the same as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tiercel.broker.scheduling.interface import Assignment, NodeView


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """A decision about a node, and all that it rests on."""

    node: NodeView  # the node
    # Everything else that the assignments follow from. Where its parts are the same objects as before, comparing costs
    # next to nothing.
    key: tuple[object, ...]
    assignments: tuple[Assignment, ...]  # what was decided


NodeMemories = Mapping[str, NodeMemory]
"""By node id."""


def recall(memories: NodeMemories, node: NodeView, key: tuple[object, ...]) -> NodeMemory | None:
    """The decision about the node if it still holds; None if it has to be made again."""
    memory = memories.get(node.id)
    if memory is None or memory.key != key or (memory.node is not node and memory.node != node):
        return None
    return memory
