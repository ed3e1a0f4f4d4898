"""What ``tiercel up`` was asked for, and where it keeps things."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiercel.core.logs import LogFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """What was asked for of a node."""

    state_dir: Path  # everything that survives a restart; absolute
    node_id: str  # name of the node
    http_port: int = 0  # of the inference server over HTTP; 0 for any
    grpc_port: int = 0  # of the inference server over gRPC; 0 for any
    runtimes: tuple[str, ...] = ()  # what the node may run jobs with, the preferred first; empty for the agent's choice
    cpu_cores: float | None = None  # cores that jobs may use; None for all
    # Those that jobs may use: ``auto``, ``none``, or ids with commas; empty for the agent's choice.
    accelerators: str = ""
    labels: tuple[str, ...] = ()  # what its operator says of it, ``key=value`` each
    # Address at which others may ask its models; empty for none of a machine that joined, and for the one at which the
    # broker listens of its own.
    advertise: str = ""
    tls_http_port: int = 0  # of the inference server over HTTP there; 0 for any
    tls_grpc_port: int = 0  # of the inference server over gRPC there; 0 for any
    listen_names: tuple[str, ...] = ()  # names and addresses by which others call this machine
    log_format: LogFormat = "text"  # how lines of the logs are written


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions(NodeOptions):
    """What was asked for of a broker, and of the node beside it."""

    broker_port: int  # of the broker's gRPC services for tenants; 0 for any
    nodes_port: int  # of its gRPC service for agents; 0 for any
    mqtt_port: int  # of the embedded MQTT broker; 0 for any
    mqtt_url: str  # an MQTT broker to use instead, or empty
    policy: str  # name of the scheduling policy, or empty for the default
    tenants: tuple[str, ...]  # tenants to make if they are missing
    dashboard_port: int = 0  # of the dashboard; 0 for any
    listen: str = ""  # address where others reach the broker, encrypted; empty for nobody else
    listen_port: int = 0  # port there for tenants and for machines that join; 0 for any
    listen_nodes_port: int = 0  # port there for agents that have joined; 0 for any
    listen_mqtt_port: int = 0  # port there of the embedded MQTT broker; 0 for any
    listen_dashboard_port: int = 0  # port there of the dashboard; 0 for any
    oidc_issuer: tuple[str, ...] = ()  # URLs of the providers at which people sign in
    oidc_audience: tuple[str, ...] = ()  # for whom their tokens must be: one for all, or one for each
    oidc_algorithms: tuple[str, ...] = ()  # by which they may be signed; empty for the default
    tls_certificate: Path | None = None  # file with a certificate of the operator's, or None
    tls_key: Path | None = None  # its key
    tls_ca: Path | None = None  # its authority's certificate
    artefacts: str = ""  # where copies of checkpoints are kept as well, or empty


@dataclass(frozen=True, slots=True)
class Places:
    """Files of a state directory that ``up`` and ``down`` deal with."""

    state_dir: Path  # the folder

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
    def identity(self) -> Path:
        """Key and certificates of a machine that joined a broker elsewhere."""
        return self.agent_dir / "identity.pem"

    @property
    def joining(self) -> Path:
        """A token's id and the key that asks with it, until there is an answer."""
        return self.agent_dir / "joining.pem"

    @property
    def serving_identity(self) -> Path:
        """Key and certificates of the broker's own node, for those who ask its models."""
        return self.agent_dir / "serving-identity.pem"

    @property
    def authority(self) -> Path:
        """The certificate of the authority that vouches for the broker, its nodes and those who ask."""
        return self.agent_dir / "authority.pem"

    @property
    def agent_lock(self) -> Path:
        """Held by the agent while it lives; its pid inside."""
        return self.agent_dir / "agent.lock"

    @property
    def agent_log(self) -> Path:
        """The agent's output."""
        return self.state_dir / "agent.log"

    @property
    def serving_state(self) -> Path:
        """Where the inference server listens, written by itself while it does."""
        return self.agent_dir / "serving.json"

    @property
    def serving_lock(self) -> Path:
        """Held by the inference server while it lives; its pid inside."""
        return self.agent_dir / "serving.lock"
