"""What an agent is made of: the command line puts it together, the agent works with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tiercel.trainer_agent.accelerators.serving_reserve import ServingReserve
from tiercel.trainer_agent.accelerators.watch import AcceleratorWatch
from tiercel.trainer_agent.connection.dialling import Dialler
from tiercel.trainer_agent.data.cache import DataLimits
from tiercel.trainer_agent.deliveries.deliveries import EXPORT_SECONDS
from tiercel.trainer_agent.disk.job_retention import Retention
from tiercel.trainer_agent.disk.outputs import OutputLimits
from tiercel.trainer_agent.disk.watch import DiskLimits
from tiercel.trainer_agent.environments.environments import EnvironmentLimits
from tiercel.trainer_agent.environments.index import PackageIndex
from tiercel.trainer_agent.inference_server.server import ServingPorts
from tiercel.trainer_agent.limits.contract import Limits
from tiercel.trainer_agent.limits.cpu import Capacity
from tiercel.trainer_agent.runs.checkpoint_copies import DEFAULT_BYTES_PER_SECOND
from tiercel.trainer_agent.runs.projects import DEFAULT_CACHE_BYTES
from tiercel.trainer_agent.runs.stopping import StopPatience
from tiercel.trainer_agent.runtimes.contract import Runtime


@dataclass(frozen=True, slots=True)
class AgentParts:
    """What an agent is made of.

    Attributes:
        node_id: Name of the node.
        state_dir: The agent's state directory.
        capacity: What jobs may use.
        limits: How shares are enforced.
        runtimes: By name, the preferred first.
        dialler: Reaches the broker.
        is_joined: Whether the broker is on another machine.
        machine_token: What inference servers of this machine show each other; raises AgentError where it is not known.
        serving_door: Settings of the inference server's doors for other machines, and of its names, as variables.
        ports: Of the inference server.
        patience: How long stopping a run may take.
        export_seconds: How long a script may take to hand over its model.
        retention: How long folders of jobs that are over are kept.
        disk: What jobs may do to the disk.
        data: What data that jobs name by URL may take.
        outputs: What is taken of the files that runs leave behind.
        labels: What the operator says of the node, for jobs to ask for.
        accelerators: Sees them, and has looked once.
        serving_reserve: What of them is the inference server's.
        project_cache_bytes: What the projects of jobs that are kept for their next runs may have.
        engine: Where the container engine listens, and what containers of this agent are labelled with; None without.
        package_index: Where environments have packages from.
        environments: What they may take.
        checkpoint_copy_bytes: What copies of checkpoints may send to the broker in a second.
    """

    node_id: str
    state_dir: Path
    capacity: Capacity
    limits: Limits
    runtimes: Mapping[str, Runtime]
    dialler: Dialler
    is_joined: bool = False
    machine_token: Callable[[], str] = lambda: ""
    serving_door: Mapping[str, str] = field(default_factory=dict)
    ports: ServingPorts = field(default_factory=ServingPorts)
    patience: StopPatience = field(default_factory=StopPatience)
    export_seconds: float = EXPORT_SECONDS
    retention: Retention = field(default_factory=Retention)
    disk: DiskLimits = field(default_factory=DiskLimits)
    data: DataLimits = field(default_factory=DataLimits)
    outputs: OutputLimits = field(default_factory=OutputLimits)
    labels: Mapping[str, str] = field(default_factory=dict)
    accelerators: AcceleratorWatch = field(default_factory=AcceleratorWatch)
    serving_reserve: ServingReserve = field(default_factory=ServingReserve)
    project_cache_bytes: int = DEFAULT_CACHE_BYTES
    engine: tuple[str, str] | None = None
    package_index: PackageIndex = field(default_factory=PackageIndex)
    environments: EnvironmentLimits = field(default_factory=EnvironmentLimits)
    checkpoint_copy_bytes: int = DEFAULT_BYTES_PER_SECOND
