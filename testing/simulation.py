"""Short ways to build what is simulated."""

from __future__ import annotations

from collections.abc import Sequence

from tiercel.broker.scheduling.interface import CurvePoint
from tiercel.broker.simulation.cluster import NO_PENALTY, Colocation
from tiercel.broker.simulation.curves import RecordedCurve
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
