"""Short ways to build what is simulated."""

from __future__ import annotations

from collections.abc import Sequence

from tiercel.broker.scheduling.interface import CurvePoint
from tiercel.broker.simulation.cluster import NO_PENALTY, Colocation
from tiercel.broker.simulation.curves import RecordedCurve
from tiercel.broker.simulation.endpoints import EndpointTraffic
from tiercel.broker.simulation.scenario import MachineSettings, Scenario, equal_nodes
from tiercel.broker.simulation.workload import ListedJobs, PlannedJob, Workload
from tiercel.core.jobs import Direction, Resources, Tier

GIB = 1024**3


def steps(
    *values: float,
    name: str = "steps",
    tiers: Sequence[float] = (0.5, 0.9),
    startup: float = 1.0,
    cores: float = 1.0,
    memory_bytes: int = GIB,
    trains_on: bool = False,
    direction: Direction = Direction.MAX,
    timeout: float = 1e9,
    exports: tuple[float, float] = (0.0, 0.0),
) -> Workload:
    """A run that reports these values, one after each CPU second of training.

    ``exports``: CPU seconds of its first and of each further export.
    """
    points = tuple(CurvePoint(startup + number, value) for number, value in enumerate(values, start=1))
    return Workload(
        name=name,
        curve=RecordedCurve(points),
        tiers=tuple(Tier(target) for target in tiers),
        direction=direction,
        startup_cpu_seconds=startup,
        first_export_cpu_seconds=exports[0],
        export_cpu_seconds=exports[1],
        max_epochs=len(points),
        continue_after_last_tier=trains_on,
        resources=Resources(cores, memory_bytes),
        report_timeout_seconds=timeout,
    )


def scenario(
    *jobs: tuple[float, Workload], nodes: int = 1, cores: float = 1.0, colocation: Colocation = NO_PENALTY
) -> Scenario:
    """These jobs, each with the second of its arrival, on nodes of one core."""
    return Scenario(
        nodes=equal_nodes(nodes, cores),
        jobs=ListedJobs(tuple(PlannedJob(at, workload) for at, workload in jobs)),
        machines=MachineSettings(colocation=colocation, delivery_seconds=0.5),
    )


def closed_endpoints(
    objectives: Sequence[float], *, nodes: int = 1, alone_seconds: float = 3.0, opens_every: float = 0.0
) -> Scenario:
    """The experiment of DQoES (Mao et al., 2020): models of equal work that answer one batch after the other.

    Args:
        objectives: Seconds that a batch of each may take; spread over the nodes in turn.
        nodes: How many, with one core each.
        alone_seconds: CPU seconds of a batch.
        opens_every: Seconds from one model's first batch to the next model's.
    """
    cluster = equal_nodes(nodes, 1.0)
    endpoints = tuple(
        EndpointTraffic(
            name=f"model{number:03}",
            work_cpu_seconds=alone_seconds,
            clients=1,
            objective_seconds=objective,
            node_id=cluster[number % nodes].id,
            quality=1.0,
            opens_at=number * opens_every,
        )
        for number, objective in enumerate(objectives)
    )
    return Scenario(name="closed endpoints", nodes=cluster, endpoints=endpoints, duration_seconds=1000.0)
