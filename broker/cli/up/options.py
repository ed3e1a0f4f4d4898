"""What ``tiercel up`` was asked for, and where it keeps things."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What was asked for.

    Attributes:
        state_dir: Everything that survives a restart; absolute.
        broker_port: Of the broker's gRPC services for tenants; 0 for any.
        nodes_port: Of its gRPC service for agents; 0 for any.
        http_port: Of the inference server over HTTP; 0 for any.
        grpc_port: Of the inference server over gRPC; 0 for any.
        mqtt_port: Of the embedded MQTT broker; 0 for any.
        mqtt_url: An MQTT broker to use instead, or empty.
        policy: Name of the scheduling policy, or empty for the default.
        tenants: Tenants to make if they are missing.
        runtimes: What the node may run jobs with, the preferred first; empty for the agent's choice.
        node_id: Name of the node.
        cpu_cores: Cores that jobs may use; None for all.
        accelerators: Those that jobs may use: ``auto``, ``none``, or ids with commas; empty for the agent's choice.
    """

    state_dir: Path
    broker_port: int
    nodes_port: int
    http_port: int
    grpc_port: int
    mqtt_port: int
    mqtt_url: str
    policy: str
    tenants: tuple[str, ...]
    runtimes: tuple[str, ...]
    node_id: str
    cpu_cores: float | None
    accelerators: str = ""


@dataclass(frozen=True, slots=True)
class Places:
    """Files of a state directory that ``up`` and ``down`` deal with.

    Attributes:
        state_dir: The folder.
    """

    state_dir: Path

    @property
    def up_lock(self) -> Path:
        """Held by the one ``up`` there may be; its pid inside."""
        return self.state_dir / "up.lock"

    @property
    def addresses(self) -> Path:
        """Where things listen."""
        return self.state_dir / "addresses.json"

    @property
    def broker_log(self) -> Path:
        """What the broker has to tell."""
        return self.state_dir / "broker.log"

    @property
    def up_log(self) -> Path:
        """What an ``up`` in the background says."""
        return self.state_dir / "up.log"

    @property
    def node_token(self) -> Path:
        """The agent's secret."""
        return self.state_dir / "node.token"

    @property
    def agent_dir(self) -> Path:
        """The agent's own state directory."""
        return self.state_dir / "agent"

    @property
    def agent_lock(self) -> Path:
        """Held by the agent while it lives; its pid inside."""
        return self.agent_dir / "agent.lock"

    @property
    def agent_log(self) -> Path:
        """The agent's output."""
        return self.state_dir / "agent.log"

    @property
    def serving_lock(self) -> Path:
        """Held by the inference server while it lives; its pid inside."""
        return self.agent_dir / "serving.lock"
