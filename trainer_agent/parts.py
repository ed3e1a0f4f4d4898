"""What an agent is made of: the command line puts it together, the agent works with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tiercel.core.deploying import DEFAULT_MODEL_BYTES
from tiercel.core.logs import LogFormat
from tiercel.trainer_agent.accelerators.serving_reserve import ServingReserve
from tiercel.trainer_agent.accelerators.watch import AcceleratorWatch
from tiercel.trainer_agent.connection.dialling import Dialler
from tiercel.trainer_agent.connection.pace import DEFAULT_BYTES_PER_SECOND
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
from tiercel.trainer_agent.runs.projects import DEFAULT_CACHE_BYTES
from tiercel.trainer_agent.runs.stopping import StopPatience
from tiercel.trainer_agent.runtimes.contract import Runtime


@dataclass(frozen=True, slots=True)
class AgentParts:
    """What an agent is made of."""

    node_id: str  # name of the node
    state_dir: Path  # the agent's state directory
    capacity: Capacity  # what jobs may use
    limits: Limits  # how shares are enforced
    runtimes: Mapping[str, Runtime]  # by name, the preferred first
    dialler: Dialler  # reaches the broker
    is_joined: bool = False  # whether the broker is on another machine
    # What inference servers of this machine show each other; raises AgentError where it is not known.
    machine_token: Callable[[], str] = lambda: ""
    # Settings of the inference server's doors for other machines, and of its names, as variables.
    serving_door: Mapping[str, str] = field(default_factory=dict)
    ports: ServingPorts = field(default_factory=ServingPorts)  # of the inference server
    patience: StopPatience = field(default_factory=StopPatience)  # how long stopping a run may take
    export_seconds: float = EXPORT_SECONDS  # how long a script may take to hand over its model
    retention: Retention = field(default_factory=Retention)  # how long folders of jobs that are over are kept
    disk: DiskLimits = field(default_factory=DiskLimits)  # what jobs may do to the disk
    data: DataLimits = field(default_factory=DataLimits)  # what data that jobs name by URL may take
    outputs: OutputLimits = field(default_factory=OutputLimits)  # what is taken of the files that runs leave behind
    model_bytes: int = DEFAULT_MODEL_BYTES  # what a model may have, with its weights beside it
    log_format: LogFormat = "text"  # how lines of the log are written
    labels: Mapping[str, str] = field(default_factory=dict)  # what the operator says of the node, for jobs to ask for
    accelerators: AcceleratorWatch = field(default_factory=AcceleratorWatch)  # sees them, and has looked once
    serving_reserve: ServingReserve = field(default_factory=ServingReserve)  # what of them is the inference server's
    # What the projects of jobs that are kept for their next runs may have.
    project_cache_bytes: int = DEFAULT_CACHE_BYTES
    # Where the container engine listens, and what containers of this agent are labelled with; None without.
    engine: tuple[str, str] | None = None
    package_index: PackageIndex = field(default_factory=PackageIndex)  # where environments have packages from
    environments: EnvironmentLimits = field(default_factory=EnvironmentLimits)  # what they may take
    # What copies that nobody waits for may send to the broker in a second, and as much may come from there.
    checkpoint_copy_bytes: int = DEFAULT_BYTES_PER_SECOND
