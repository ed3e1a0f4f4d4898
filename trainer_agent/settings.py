"""What can be set about an agent: by command-line flags, else by environment variables ``TIERCEL_AGENT_...``."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from tiercel.core.addresses import HOST_NAME, split_address
from tiercel.core.deploying import DEFAULT_MODEL_BYTES
from tiercel.core.errors import InvalidSpecError
from tiercel.core.logs import LogFormat
from tiercel.core.trust.trust import is_loopback
from tiercel.core.validation import RUNTIMES, validate_labels
from tiercel.trainer_agent.accelerators.detect import AUTO, NONE
from tiercel.trainer_agent.connection.pace import DEFAULT_BYTES_PER_SECOND, LEAST_BYTES_PER_SECOND
from tiercel.trainer_agent.data.sources import check_prefix
from tiercel.trainer_agent.limits.groups import ORDINARY_TRAINING_WEIGHT
from tiercel.trainer_agent.limits.thread_scheduling import LONGEST_SECONDS
from tiercel.trainer_agent.metrics.door import MetricsPlace
from tiercel.trainer_agent.runs.projects import DEFAULT_CACHE_BYTES

_ADDRESS: Final = re.compile(r"[0-9A-Fa-f:.]+")
_DEVICE_ID: Final = re.compile(r"(GPU|MIG)-[A-Za-z0-9/-]+")
_DEFAULT_DOCKER_HOST: Final = "unix:///var/run/docker.sock"


class AgentSettings(BaseSettings):
    """A node agent's settings: what is said under each of them is its flag's help."""

    model_config = SettingsConfigDict(env_prefix="TIERCEL_AGENT_", frozen=True, use_attribute_docstrings=True)

    broker: str = ""
    """where the broker listens for agents, host:port"""
    addresses_file: Path | None = None
    """JSON file whose key 'nodes' has that address; read again before every dial"""
    node_id: str = Field(default_factory=socket.gethostname, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")
    """name of this node (default: the host's name)"""
    state_dir: Path
    """where the agent keeps everything"""
    token_file: Path | None = None
    """file whose first line is the agents' token, on the broker's own machine"""
    identity_file: Path | None = None
    """file with the node's key and certificates, on a machine that joined by 'tiercel join'"""
    advertise: str = ""
    """address of this machine at which others may ask its models (default: none)"""
    listen_names: Annotated[tuple[str, ...], NoDecode] = ()
    """names with commas by which others call this machine beside that, as in a request's Host; others are refused"""
    serving_identity_file: Path | None = None
    """file with the key and certificates for that, beside authority.pem, on the broker's own machine"""
    runtimes: Annotated[tuple[str, ...], NoDecode] = ()
    """process, docker or both with a comma, the preferred first (default: process, and docker if an engine answers)"""
    docker_host: str = Field(default_factory=lambda: os.environ.get("DOCKER_HOST") or _DEFAULT_DOCKER_HOST)
    """where the Docker engine listens (default: DOCKER_HOST, else unix:///var/run/docker.sock)"""
    docker_image: str = "tiercel-trainer:latest"
    """image of jobs that name none (default: tiercel-trainer:latest)"""
    cpus: Annotated[frozenset[int], NoDecode] = frozenset()
    """processors that this node is made of, like 0,2-3 (default: those that the agent may use)"""
    cpu_cores: float | None = Field(default=None, gt=0)
    """cores that jobs may use (default: all)"""
    memory_bytes: int | None = Field(default=None, gt=0)
    """memory that jobs may use (default: all)"""
    accelerators: str = AUTO
    """accelerators that jobs may use: auto for all (default), none, or ids as nvidia-smi -L has them"""
    serving_accelerator_memory: int | None = Field(default=None, ge=0)
    """bytes of the first one's memory for serving; 0 to serve on the CPU (default: an eighth, where CUDA is there)"""
    mps: bool | None = None
    """whether NVIDIA's MPS daemon runs here for training to use: yes or no (default: if its directory is there)"""
    http_port: int = Field(default=0, ge=0, le=65535)
    """port of the inference server's REST interface (default 0: any free one)"""
    grpc_port: int = Field(default=0, ge=0, le=65535)
    """port of its gRPC interface (default 0: any free one)"""
    tls_http_port: int = Field(default=0, ge=0, le=65535)
    """port of its REST interface for other machines, at --advertise (default 0: any free one)"""
    tls_grpc_port: int = Field(default=0, ge=0, le=65535)
    """port of its gRPC interface for other machines (default 0: any free one)"""
    metrics_listen: str = ""
    """HOST:PORT of this machine where Prometheus is told the node's numbers (default: nowhere)"""
    metrics_token_file: Path | None = None
    """file whose first line it has to send; needed, with an identity, where HOST is not loopback"""
    log_format: LogFormat = "text"
    """text (default), or json for one JSON object a line; of the inference server too"""
    time_slice_seconds: float = Field(default=0.006, ge=0, le=LONGEST_SECONDS)
    """how long training computes before the kernel looks who is next, 0 to leave it to the kernel"""
    training_weight: float = Field(default=ORDINARY_TRAINING_WEIGHT, ge=0.01, le=2.5)
    """what all training weighs for each core, where any other process on the machine weighs 1"""
    project_cache_bytes: int = Field(default=DEFAULT_CACHE_BYTES, ge=0)
    """bytes that projects of jobs may have on the disk that are kept for their next runs"""
    job_disk_bytes: int = Field(default=20 * 1024**3, gt=0)
    """bytes that the folder of a job may have on the disk (default 20 GiB)"""
    disk_reserve_bytes: int = Field(default=512 * 1024**2, ge=0)
    """bytes that the disk has to have left; with less, a job that fills it ends (default 512 MiB)"""
    output_file_bytes: int = Field(default=256 * 1024**2, gt=0)
    """the largest file that is kept of what a run leaves behind (default 256 MiB)"""
    output_bytes: int = Field(default=1024**3, gt=0)
    """bytes that those files of a run may have together (default 1 GiB)"""
    model_bytes: int = Field(default=DEFAULT_MODEL_BYTES, gt=0)
    """what one model may have with its weights beside it, at the inference server too (default 16 GiB)"""
    labels: Annotated[dict[str, str], NoDecode] = Field(default_factory=dict)
    """what jobs may ask for by node_labels; in the environment with commas"""
    data_cache_bytes: int = Field(default=50 * 1024**3, gt=0)
    """bytes that data which jobs name by URL may take on the disk (default 50 GiB)"""
    data_sources: Annotated[tuple[str, ...], NoDecode] = ()
    """URLs with commas that jobs may use with all below them: file:///FOLDER/, hosts here, buckets"""
    warm_templates: int = Field(default=2, ge=0, le=64)
    """processes that runs are forked from, and containers that wait, at most; 0: neither (default 2)"""
    warm_idle_seconds: float = Field(default=600.0, gt=0, le=86400.0)
    """how long such a process waits for another run (default 600)"""
    keep_ended_jobs: int = Field(default=20, ge=0)
    """folders of jobs that are over to keep at most (default 20)"""
    keep_ended_seconds: float = Field(default=7 * 86400.0, ge=0, allow_inf_nan=False)
    """how long to keep each of them at most (default a week)"""
    package_index: str = ""
    """address of the index that environments have packages from (default: PyPI)"""
    package_folder: Path | None = None
    """folder with packages that are taken as well"""
    package_offline: bool = False
    """whether packages come from that folder alone: yes or no (default: no)"""
    package_sdists: bool = False
    """whether packages to be built are taken, whose code then runs here: yes or no (default: no)"""
    environments_bytes: int = Field(default=20 * 1024**3, gt=0)
    """bytes that all environments may have on the disk together (default 20 GiB)"""
    environment_seconds: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    """how long one may take to be built (default 600)"""
    checkpoint_copy_bytes: int = Field(default=DEFAULT_BYTES_PER_SECOND, ge=LEAST_BYTES_PER_SECOND)
    """bytes a second that copies nobody waits for may send to the broker, and as many from there (default 16 MiB)"""

    @field_validator("runtimes", "data_sources", "listen_names", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("labels", mode="before")
    @classmethod
    def _labels(cls, value: object) -> object:
        return labels_from(value.split(",") if isinstance(value, str) else value)

    @field_validator("cpus", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return cpus_from(value) if isinstance(value, str) else value

    @field_validator("runtimes")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name not in RUNTIMES:
                raise ValueError(f"{name!r} is not a runtime; there are {' and '.join(RUNTIMES)}")
        return value

    @field_validator("data_sources")
    @classmethod
    def _trusted(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(check_prefix, value))

    @field_validator("listen_names")
    @classmethod
    def _names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not HOST_NAME.fullmatch(name) and not _ADDRESS.fullmatch(name):
                raise ValueError(f"{name!r} is not the name of a host; give names alone: without ports, and no '*'")
        return value

    @field_validator("accelerators")
    @classmethod
    def _accelerators(cls, value: str) -> str:
        ids = [part.strip() for part in value.split(",")]
        if value not in {AUTO, NONE} and not all(_DEVICE_ID.fullmatch(part) for part in ids):
            raise ValueError(
                f"{value!r} names no accelerators; give auto, none, or ids like GPU-5a6b1f0c-... with commas"
            )
        return ",".join(ids)

    @model_validator(mode="after")
    def _one_address(self) -> Self:
        if bool(self.broker) == (self.addresses_file is not None):
            raise ValueError("give either --broker or --addresses-file")
        if (self.token_file is None) == (self.identity_file is None):
            raise ValueError("give --token-file on the broker's own machine, or --identity-file on one that joined")
        return self

    @model_validator(mode="after")
    def _door_has_a_certificate(self) -> Self:
        if self.advertise and self.own_identity is None:
            raise ValueError(
                "--advertise needs --identity-file, or --serving-identity-file on the broker's own machine"
            )
        return self

    @model_validator(mode="after")
    def _metrics_are_for_few(self) -> Self:
        if not self.metrics_listen:
            return self
        try:
            split_address(self.metrics_listen)
        except ValueError as error:
            raise ValueError(f"--metrics-listen: {error}") from None
        if not is_loopback(self.metrics_listen) and (self.metrics_token_file is None or self.own_identity is None):
            raise ValueError(
                f"--metrics-listen {self.metrics_listen} can be reached from other machines: give --metrics-token-file "
                "and, for TLS, --identity-file or --serving-identity-file as well; or listen on 127.0.0.1"
            )
        return self

    @property
    def own_identity(self) -> Path | None:
        """The file with the key and certificates that this machine shows others."""
        return self.identity_file or self.serving_identity_file

    @property
    def metrics_place(self) -> MetricsPlace | None:
        """Where the node's numbers are told, and for whom; None for nowhere."""
        if not self.metrics_listen:
            return None
        host, port = split_address(self.metrics_listen)
        identity = None if is_loopback(self.metrics_listen) else self.own_identity
        return MetricsPlace("127.0.0.1" if host == "localhost" else host, port, self.metrics_token_file, identity)

    @property
    def instance(self) -> str:
        """Tells agents of the same node id but another state directory apart; fit for a control group's name."""
        place = hashlib.sha256(os.fsencode(self.state_dir.resolve())).hexdigest()[:8]
        return f"{re.sub(r'[^A-Za-z0-9-]', '-', self.node_id)[:64]}-{place}"


def labels_from(written: object) -> object:
    """Labels of a node from parts like ``disk=ssd``; anything but a list is left to whoever asks.

    Raises:
        ValueError: One is something else, or there are too many.
    """
    if not isinstance(written, list):
        return written
    parts = [str(part).strip().partition("=") for part in written if str(part).strip()]
    for name, equals, value in parts:
        if not (equals and value):
            raise ValueError(f"{name!r} is no label; give --label KEY=VALUE")
    labels = {name: value for name, _, value in parts}
    if len(labels) < len(parts):
        raise ValueError("one label is given twice; a label has one value")
    try:
        validate_labels(labels, "--label")
    except InvalidSpecError as error:
        raise ValueError(error.message) from None
    return labels


def cpus_from(text: str) -> frozenset[int]:
    """Processors from a list like ``0,2-3``, as ``taskset`` takes it.

    Raises:
        ValueError: It is something else.
    """
    cpus: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise ValueError(f"{text!r} is no list of processors; give numbers and ranges like 0,2-3")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)
