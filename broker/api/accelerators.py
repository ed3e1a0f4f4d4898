"""What agents tell of accelerators, checked."""

from __future__ import annotations

from tiercel.broker.actors.node_messages import AcceleratorStatus
from tiercel.core.errors import wrong_field
from tiercel.core.nodes import Accelerator
from tiercel.core.wire import from_proto
from tiercel.v1 import nodes_pb2

MAX_PER_NODE = 256


def accelerators_of(hello: nodes_pb2.NodeHello) -> tuple[Accelerator, ...]:
    """The accelerators that an agent says its node has, in its order.

    Raises:
        InvalidSpecError: They cannot be told apart, or say too little; ``field`` names which.
    """
    if len(hello.accelerators) > MAX_PER_NODE:
        raise wrong_field("hello.accelerators", f"are {len(hello.accelerators)}; a node has {MAX_PER_NODE} at most")
    found: dict[str, Accelerator] = {}
    for index, told in enumerate(hello.accelerators):
        if not told.id or told.id in found:
            raise wrong_field(f"hello.accelerators[{index}].id", f"{told.id!r} is missing or was there before")
        if told.memory_bytes <= 0:
            raise wrong_field(
                f"hello.accelerators[{index}].memory_bytes", "is missing; say how much memory jobs may use"
            )
        found[told.id] = from_proto(Accelerator, told)
    return tuple(found.values())


def accelerator_statuses(beat: nodes_pb2.Heartbeat) -> tuple[AcceleratorStatus, ...]:
    """How accelerators are, as a heartbeat has it; what cannot be is taken for not known."""
    return tuple(
        AcceleratorStatus(
            id=told.id,
            utilisation=told.utilisation if told.HasField("utilisation") and 0 <= told.utilisation <= 1 else None,
            memory_used_bytes=told.memory_used_bytes,
            problem=told.problem,
        )
        for told in beat.accelerators
    )
