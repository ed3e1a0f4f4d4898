"""What ``tiercel up`` was asked for, and where it keeps things."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

UP_WORDS = "Tiercel is up: "
"""How the line begins that says where everything answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """What was asked for of a node.

    Attributes:
        state_dir: Everything that survives a restart; absolute.
        node_id: Name of the node.
        http_port: Of the inference server over HTTP; 0 for any.
        grpc_port: Of the inference server over gRPC; 0 for any.
        runtimes: What the node may run jobs with, the preferred first; empty for the agent's choice.
        cpu_cores: Cores that jobs may use; None for all.
        accelerators: Those that jobs may use: ``auto``, ``none``, or ids with commas; empty for the agent's choice.
        labels: What its operator says of it, ``key=value`` each.
        advertise: Address at which others may ask its models; empty for none of a machine that joined, and for the
            one at which the broker listens of its own.
        tls_http_port: Of the inference server over HTTP there; 0 for any.
        tls_grpc_port: Of the inference server over gRPC there; 0 for any.
        listen_names: Names and addresses by which others call this machine.
    """

    state_dir: Path
    node_id: str
    http_port: int = 0
    grpc_port: int = 0
    runtimes: tuple[str, ...] = ()
    cpu_cores: float | None = None
    accelerators: str = ""
    labels: tuple[str, ...] = ()
    advertise: str = ""
    tls_http_port: int = 0
    tls_grpc_port: int = 0
    listen_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions(NodeOptions):
    """What was asked for of a broker, and of the node beside it.

    Attributes:
        broker_port: Of the broker's gRPC services for tenants; 0 for any.
        nodes_port: Of its gRPC service for agents; 0 for any.
        mqtt_port: Of the embedded MQTT broker; 0 for any.
        dashboard_port: Of the dashboard; 0 for any.
        mqtt_url: An MQTT broker to use instead, or empty.
        policy: Name of the scheduling policy, or empty for the default.
        tenants: Tenants to make if they are missing.
        listen: Address where others reach the broker, encrypted; empty for nobody else.
        listen_port: Port there for tenants and for machines that join; 0 for any.
        listen_nodes_port: Port there for agents that have joined; 0 for any.
        listen_mqtt_port: Port there of the embedded MQTT broker; 0 for any.
        listen_dashboard_port: Port there of the dashboard; 0 for any.
        oidc_issuer: URL of the provider at which people sign in; empty for none.
        oidc_audience: For whom its tokens must be.
        oidc_algorithms: By which they may be signed; empty for the default.
        tls_certificate: File with a certificate of the operator's, or None.
        tls_key: Its key.
        tls_ca: Its authority's certificate.
        artefacts: Where copies of checkpoints are kept as well, or empty.
    """

    broker_port: int
    nodes_port: int
    mqtt_port: int
    mqtt_url: str
    policy: str
    tenants: tuple[str, ...]
    dashboard_port: int = 0
    listen: str = ""
    listen_port: int = 0
    listen_nodes_port: int = 0
    listen_mqtt_port: int = 0
    listen_dashboard_port: int = 0
    oidc_issuer: str = ""
    oidc_audience: str = ""
    oidc_algorithms: tuple[str, ...] = ()
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_ca: Path | None = None
    artefacts: str = ""


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
    def identity(self) -> Path:
        """Key and certificates of a machine that joined a broker elsewhere."""
        return self.agent_dir / "identity.pem"

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
    def serving_lock(self) -> Path:
        """Held by the inference server while it lives; its pid inside."""
        return self.agent_dir / "serving.lock"
