"""A simulator of the broker's world: virtual time, the very policies, loop and job machine that run live."""

from tiercel.broker.simulation.result import Result
from tiercel.broker.simulation.scenario import MachineSettings, Scenario, SimulationError, equal_nodes
from tiercel.broker.simulation.simulation import simulate
from tiercel.broker.simulation.workload import DrawnJobs, ListedJobs, PlannedJob, Workload

__all__ = [
    "DrawnJobs",
    "ListedJobs",
    "MachineSettings",
    "PlannedJob",
    "Result",
    "Scenario",
    "SimulationError",
    "Workload",
    "equal_nodes",
    "simulate",
]
