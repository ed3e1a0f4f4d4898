"""From accelerators as they are seen to what the broker is told of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tiercel.trainer_agent.accelerators.contract import Device, Reading
from tiercel.trainer_agent.accelerators.serving_reserve import ServingReserve
from tiercel.v1 import nodes_pb2


def devices_to_wire(
    devices: Sequence[Device], readings: Sequence[Reading], serving: ServingReserve
) -> list[nodes_pb2.Accelerator]:
    """The devices of a hello with the memory that serving leaves to jobs, and with the problems that they have now."""
    problems = {reading.device_id: reading.problem for reading in readings}
    return [
        nodes_pb2.Accelerator(
            id=device.id,
            name=device.name,
            memory_bytes=serving.left_of(device),
            problem=problems.get(device.id, ""),
        )
        for device in devices
    ]


def readings_to_wire(readings: Sequence[Reading]) -> list[nodes_pb2.AcceleratorUsage]:
    """How they are, for a heartbeat."""
    return [
        nodes_pb2.AcceleratorUsage(
            id=reading.device_id,
            utilisation=reading.utilisation,
            memory_utilisation=reading.memory_utilisation,
            memory_used_bytes=reading.memory_used_bytes,
            problem=reading.problem,
        )
        for reading in readings
    ]
