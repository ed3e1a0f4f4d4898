"""What is simulated: nodes, jobs, endpoints, and how the machines behave."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tiercel.broker.scheduling.interface import NodeView, PastRun
from tiercel.broker.scheduling.loop import LoopSettings
from tiercel.broker.simulation.cluster import Colocation
from tiercel.broker.simulation.endpoints import EndpointTraffic
from tiercel.broker.simulation.underway import Underway
from tiercel.broker.simulation.workload import JobSource, ListedJobs

GIB = 1024**3


class SimulationError(Exception):
    """A scenario cannot be simulated, or a policy brought it to a standstill."""


class UnsoundPlanError(SimulationError):
    """A policy made a plan that the live broker would refuse."""


@dataclass(frozen=True, slots=True)
class MachineSettings:
    """How nodes, agents and the inference server behave."""

    colocation: Colocation = field(default_factory=Colocation)  # what sharing cores costs
    spawn_seconds: float = 0.0  # from an assignment until the run exists
    stop_seconds: float = 0.1  # from asking a run to stop until it is gone; it trains no more meanwhile
    # From the end of an export until its version answers (verify, load, warm, flip); the export itself takes the run's
    # CPU, see :class:`.Workload`.
    delivery_seconds: float = 0.1
    # From the decision to migrate until the run is gone from its node; on the other one it starts up anew and goes on
    # where it was.
    checkpoint_seconds: float = 1.0
    # What everything else on a node uses of it (broker, agent, verification, other programs); runs share the rest,
    # which is never less than a tenth of the node.
    overhead_cores: float = 0.0
    usage_seconds: float = 1.0  # how often a node tells how much CPU its runs have used, besides with their reports
    migrations: bool = True  # whether jobs may be sent to other nodes at all


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything a simulation depends on besides the policy and the seed."""

    nodes: tuple[NodeView, ...]  # where jobs run
    jobs: JobSource = field(default_factory=lambda: ListedJobs(()))  # what runs
    name: str = "scenario"  # what reports call it
    endpoints: tuple[EndpointTraffic, ...] = ()  # what is asked
    machines: MachineSettings = field(default_factory=MachineSettings)  # how nodes behave
    # How often the policy is asked.
    loop: LoopSettings = field(default_factory=lambda: LoopSettings(interval_seconds=1.0))
    # Simulate at least so long; 0: until the last job is over. With endpoints it must be given.
    duration_seconds: float = 0.0
    # Meant nodes of arriving jobs are drawn, and policies that place with ``placement.place`` go by that while it has
    # room: an initial placement that is the same for all of them.
    random_placement: bool = False
    # Only every so manyth report is told, besides those that reach a tier and the last one. Times to tiers stay exact;
    # policies see less.
    reports_every: int = 1
    step_seconds: float = 1.0  # how often loads and delays of endpoints are looked up
    measurement_noise: float = 0.02  # standard deviation of the logarithm of what is measured of endpoints
    # Earlier runs that are known from the beginning, by workload.
    history: Mapping[str, tuple[PastRun, ...]] = field(default_factory=dict)
    similar: Mapping[str, tuple[PastRun, ...]] = field(default_factory=dict)  # likewise, by :attr:`.Workload.similar`
    speeds: Mapping[str, float] = field(
        default_factory=dict
    )  # work that a CPU second of a node does, if not 1; by node
    # Part that runs get of the cores that are theirs, as other programs take the rest, if not all; by node.
    given: Mapping[str, float] = field(default_factory=dict)
    record_usage: bool = False  # keep what each job used over time
    check_plans: bool = True  # refuse unsound plans as the live broker does, with an exception
    underway: tuple[Underway, ...] = ()  # jobs that there are when it begins
    horizon_seconds: float = math.inf  # end it then at the latest; what is not over by then is told as it is

    def __post_init__(self) -> None:
        """Refuse what could not end."""
        if not self.nodes:
            msg = "a scenario needs a node"
            raise ValueError(msg)
        if self.reports_every < 1 or self.step_seconds <= 0:
            msg = "reports_every must be at least 1 and step_seconds positive"
            raise ValueError(msg)
        if self.endpoints and self.duration_seconds <= 0:
            msg = "with endpoints, duration_seconds must say how long to simulate"
            raise ValueError(msg)
        known = {"", *(node.id for node in self.nodes)}
        for endpoint in self.endpoints:
            if endpoint.node_id not in known:
                raise ValueError(f"endpoint {endpoint.name} is on node {endpoint.node_id}, which the scenario lacks")
        if len({endpoint.name for endpoint in self.endpoints}) < len(self.endpoints):
            msg = "two endpoints have the same name"
            raise ValueError(msg)


def equal_nodes(count: int, cpu_cores: float = 2.0, memory_bytes: int = 64 * GIB) -> tuple[NodeView, ...]:
    """So many nodes that are all alike."""
    width = len(str(count))
    return tuple(NodeView(f"node{number:0{width}}", cpu_cores, memory_bytes) for number in range(1, count + 1))
