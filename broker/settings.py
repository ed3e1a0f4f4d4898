"""Settings of the broker, from arguments and from the environment (``TIERCEL_…``)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from tiercel.broker.actors.artefacts.own import Patience
from tiercel.broker.lifecycle.node import LeaseSettings
from tiercel.broker.lifecycle.retention import RetentionSettings
from tiercel.broker.store.checkpoints import DEFAULT_CHECKPOINTS_BYTES
from tiercel.broker.store.projects import DEFAULT_TENANT_BYTES
from tiercel.core.deploying import DEFAULT_MODEL_BYTES
from tiercel.core.files import FileLimits
from tiercel.core.projects import DEFAULT_PROJECT_BYTES


class BrokerSettings(BaseSettings):
    """How a broker runs."""

    model_config = SettingsConfigDict(env_prefix="TIERCEL_", extra="ignore")

    state_dir: Path  # folder with everything that survives a restart
    host: str = "127.0.0.1"  # address to listen on without encryption; only loopback is allowed
    # Address to listen on with encryption as well, ``0.0.0.0`` for all of IPv4, ``::`` for all there are; empty for
    # none.
    listen: str = ""
    # Port there for tenants, and for machines that join; 0 means any free one.
    listen_port: int = Field(default=0, ge=0, le=65535)
    # Port there for agents that have joined; 0 means any free one.
    listen_nodes_port: int = Field(default=0, ge=0, le=65535)
    # Port there of the embedded MQTT broker; 0 means any free one.
    listen_mqtt_port: int = Field(default=0, ge=0, le=65535)
    listen_dashboard_port: int = Field(default=0, ge=0, le=65535)  # port there of the dashboard; 0 means any free one
    # Names and addresses by which others call this machine, the one to tell them first; as JSON in the environment.
    listen_names: tuple[str, ...] = ()
    # File with a certificate of the operator's for tenants; None for one of our own authority.
    tls_certificate: Path | None = None
    tls_key: Path | None = None  # file with its key
    tls_ca: Path | None = None  # file with the certificate of the authority that vouches for it
    # How long the certificates of the broker and its nodes are good for, which are renewed in time; None for 30 days.
    certificate_seconds: float | None = Field(default=None, ge=10, le=365 * 86_400)
    # URLs of the OpenID Connect providers at which people sign in, 8 at most; with commas in the environment.
    oidc_issuer: Annotated[tuple[str, ...], NoDecode] = ()
    # For whom their tokens must be: one for all, or one for each in their order; with commas in the environment.
    oidc_audience: Annotated[tuple[str, ...], NoDecode] = ()
    # Those that they may be signed by; as JSON in the environment.
    oidc_algorithms: tuple[str, ...] = ("ES256", "RS256")
    broker_port: int = Field(default=0, ge=0, le=65535)  # port of the gRPC services for tenants; 0 means any free one
    nodes_port: int = Field(default=0, ge=0, le=65535)  # port of the gRPC service for agents; 0 means any free one
    dashboard_port: int = Field(default=0, ge=0, le=65535)  # port of the dashboard, over HTTP; 0 means any free one
    mqtt_port: int = Field(default=0, ge=0, le=65535)  # port of the embedded MQTT broker; 0 means any free one
    mqtt_url: str = ""  # MQTT broker to publish to, ``mqtt://host:port`` or ``mqtts://…``; empty means an embedded one
    mqtt_username: str = ""  # name to publish under, or empty
    mqtt_password: str = Field(default="", repr=False)  # its password
    policy: str = "utility"  # name of the scheduling policy
    # Of the policy, see ``scheduling/README.md``; as JSON in the environment.
    policy_options: dict[str, bool | float | str] = Field(default_factory=dict)
    tenants: tuple[str, ...] = ("default",)  # tenants that get a token at the start if they have none
    # Time between two looks of the scheduler while nothing happens; doubled up to 16-fold.
    interval_seconds: float = Field(default=2.0, gt=0, allow_inf_nan=False)
    # Silence after which a node counts as offline.
    lease_seconds: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    # Silence after which a node's jobs start again elsewhere; its agent stops them before that. None: 120 s from when a
    # second node has connected, and until then a silent node's jobs wait for it.
    gone_after_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    heartbeat_seconds: float = Field(default=2.0, gt=0, allow_inf_nan=False)  # how often agents report usage
    # How often one token may call, over time; five seconds' worth of it at once.
    calls_per_second: float = Field(default=200.0, gt=0, allow_inf_nan=False)
    # What the files of one project may have together, in bytes.
    project_bytes: int = Field(default=DEFAULT_PROJECT_BYTES, gt=0)
    # What the projects of one tenant may have together at the broker, in bytes.
    tenant_projects_bytes: int = Field(default=DEFAULT_TENANT_BYTES, gt=0)
    # What one model of an endpoint may have, with its weights beside it, in bytes.
    model_bytes: int = Field(default=DEFAULT_MODEL_BYTES, gt=0)
    # What the files that are kept of a job may have together.
    job_files_bytes: int = Field(default=FileLimits().job_bytes, ge=0)
    # What the files that are kept of all jobs of a tenant may have together.
    tenant_files_bytes: int = Field(default=FileLimits().tenant_bytes, ge=0)
    # What the checkpoints that the broker holds of all jobs may have together.
    checkpoints_bytes: int = Field(default=DEFAULT_CHECKPOINTS_BYTES, ge=0)
    # Where is kept as well what the broker would miss if its machine were lost, ``s3://bucket/prefix`` or a folder;
    # empty for nowhere.
    artefacts: str = ""
    artefacts_bytes: int = Field(default=DEFAULT_CHECKPOINTS_BYTES, ge=0)  # what all that may have there
    # How often the database is copied there.
    artefacts_database_seconds: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    # How fast it is sent there at most, in bytes.
    artefacts_bytes_per_second: float = Field(default=Patience().sent_bytes_per_second, gt=0, allow_inf_nan=False)
    # How long events and decisions of jobs that are over are kept; ``inf`` for ever.
    keep_events_seconds: float = Field(default=RetentionSettings().events_seconds, ge=0)
    keep_logs_seconds: float = Field(default=RetentionSettings().logs_seconds, ge=0)  # how long their output is
    # How long the files that they left behind are.
    keep_files_seconds: float = Field(default=RetentionSettings().files_seconds, ge=0)
    # How long projects are that no younger job runs from.
    keep_projects_seconds: float = Field(default=RetentionSettings().projects_seconds, ge=0)
    # Of so many jobs of a tenant, those that ended last, these things are kept.
    keep_finished_jobs: int = Field(default=RetentionSettings().jobs, ge=0)

    @field_validator("oidc_issuer", "oidc_audience", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if not self.heartbeat_seconds < self.lease_seconds:
            raise ValueError("heartbeat_seconds must be shorter than lease_seconds, or every node counts as offline")
        if self.gone_after_seconds is not None and not self.lease_seconds <= self.gone_after_seconds:
            raise ValueError("gone_after_seconds must not be shorter than lease_seconds")
        return self

    @property
    def is_policy_told(self) -> bool:
        """Whether whoever started the broker chose its policy."""
        return bool({"policy", "policy_options"} & self.model_fields_set)

    @property
    def artefacts_patience(self) -> Patience:
        """How the artefact store is dealt with."""
        return Patience(sent_bytes_per_second=self.artefacts_bytes_per_second)

    @property
    def retention(self) -> RetentionSettings:
        """How long things of jobs that are over are kept."""
        return RetentionSettings(
            self.keep_events_seconds,
            self.keep_logs_seconds,
            self.keep_files_seconds,
            self.keep_projects_seconds,
            self.keep_finished_jobs,
        )

    @property
    def file_limits(self) -> FileLimits:
        """What is kept of the files that jobs leave behind."""
        return FileLimits(job_bytes=self.job_files_bytes, tenant_bytes=self.tenant_files_bytes)

    @property
    def leases(self) -> LeaseSettings:
        """How long the silence of nodes is borne."""
        if self.gone_after_seconds is not None:
            return LeaseSettings(self.lease_seconds, self.gone_after_seconds)
        gone_after = max(LeaseSettings().gone_after_seconds, 3 * self.lease_seconds)
        return LeaseSettings(self.lease_seconds, gone_after, fences_alone=False)
