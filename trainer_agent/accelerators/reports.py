"""From accelerators as they are seen to what the broker is told of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tiercel.trainer_agent.accelerators.contract import Accelerator, AcceleratorReading
from tiercel.trainer_agent.accelerators.serving_reserve import ServingReserve
from tiercel.v1 import nodes_pb2


def accelerators_to_wire(
    accelerators: Sequence[Accelerator], readings: Sequence[AcceleratorReading], serving: ServingReserve
) -> list[nodes_pb2.Accelerator]:
    """What a hello says of them, with the memory that serving leaves to jobs and the problems that they have now."""
    problems = {reading.accelerator_id: reading.problem for reading in readings}
    return [
        nodes_pb2.Accelerator(
            id=accelerator.id,
            name=accelerator.name,
            memory_bytes=serving.left_of(accelerator),
            problem=problems.get(accelerator.id, ""),
        )
        for accelerator in accelerators
    ]


def readings_to_wire(readings: Sequence[AcceleratorReading]) -> list[nodes_pb2.AcceleratorUsage]:
    """How they are, for a heartbeat."""
    return [
        nodes_pb2.AcceleratorUsage(
            id=reading.accelerator_id,
            utilisation=reading.utilisation,
            memory_utilisation=reading.memory_utilisation,
            memory_used_bytes=reading.memory_used_bytes,
            problem=reading.problem,
        )
        for reading in readings
    ]
