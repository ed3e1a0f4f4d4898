"""Scenarios with accelerators: devices for nodes, and workloads that use them."""

from __future__ import annotations

from dataclasses import replace

from tiercel.broker.scheduling.interface import NodeView
from tiercel.broker.simulation.scenario import GIB, Scenario
from tiercel.broker.simulation.workload import DrawnJobs, Workload
from tiercel.core.nodes import Accelerator

DEVICE_BYTES = 16 * GIB
# What a job that uses a device needs there.
_JOB_BYTES = 4 * GIB


def equipped(node: NodeView, count: int) -> NodeView:
    """The node with so many accelerators that are all alike."""
    devices = tuple(Accelerator(f"{node.id}-gpu{index}", "simulated", DEVICE_BYTES) for index in range(count))
    return replace(node, accelerators=devices)


def accelerated(workload: Workload, intensity: float, *, devices: int = 1, memory_bytes: int = 0) -> Workload:
    """The workload with a part of its work on accelerators.

    Args:
        workload: What it does on the CPU.
        intensity: Seconds of each device that a CPU second of work takes, > 0: above 1 a job alone on a core waits for
            its device, below it the device waits for the core.
        devices: How many it uses at once.
        memory_bytes: What it needs on each; 0: all of it, so that it shares it with nobody.
    """
    resources = replace(workload.resources, accelerators=devices, accelerator_memory_bytes=memory_bytes)
    return replace(workload, name=f"{workload.name}-accelerated", resources=resources, accelerator_intensity=intensity)


def with_accelerators(scenario: Scenario, per_node: int, *, part: float = 0.5, intensity: float = 2.0) -> Scenario:
    """The scenario with devices on every node, and a part of its kinds of drawn jobs using one.

    Args:
        scenario: What else there is.
        per_node: Devices of each node, >= 1.
        part: Which part of the kinds, in [0, 1]; spread evenly over their order.
        intensity: See :func:`accelerated`.
    """
    jobs = scenario.jobs
    if isinstance(jobs, DrawnJobs):
        kinds = tuple(
            accelerated(kind, intensity, memory_bytes=_JOB_BYTES)
            if int((index + 1) * part) > int(index * part)
            else kind
            for index, kind in enumerate(jobs.workloads)
        )
        jobs = replace(jobs, workloads=kinds)
    nodes = tuple(equipped(node, per_node) for node in scenario.nodes)
    return replace(scenario, name=f"{scenario.name}+accelerators", nodes=nodes, jobs=jobs)
