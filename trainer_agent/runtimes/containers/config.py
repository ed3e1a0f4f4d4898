"""What a training container looks like to the engine: hardened, because training code is not trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tiercel.trainer_agent.limits import mapping
from tiercel.trainer_agent.limits.contract import CpuShare
from tiercel.trainer_agent.limits.entering import ENDED_FIRST
from tiercel.trainer_agent.runtimes import ranks
from tiercel.trainer_agent.runtimes.containers.secrets import command_with_secrets
from tiercel.trainer_agent.runtimes.contract import CONTAINER_ENVIRONMENT, CONTAINER_SCRATCH, Launch, Program

JOB_FOLDER: Final = "/tiercel"
LABEL_ENVIRONMENT: Final = "tiercel.environment"
LABEL_INSTANCE: Final = "tiercel.instance"
LABEL_NODE: Final = "tiercel.node"
LABEL_RUN: Final = "tiercel.run"

PIDS_LIMIT: Final = 512
_SCRATCH_BYTES: Final = 256 * 1024**2
LOG_FILE_BYTES: Final = 8 * 1024**2
"""Of a container's output in one file of the engine, which keeps two."""
_OPEN_FILES: Final = 1024
# What ranks hand each other by memory, which counts as the container's; an engine's own limit is 64 MB.
_SHARED_BYTES: Final = 1024**3
_ASKING_BYTES: Final = 256 * 1024**2
_ASKING_PROCESSES: Final = 32
_ASKING_WEIGHT: Final = 0.05
# What engines give to programs of an image that says nothing.
_ENGINES_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class ContainerDefaults:
    """What all containers of a node have in common."""

    node_id: str  # the node
    instance: str  # tells agents of the same node id but another state directory apart
    image: str  # image of jobs that name none
    user: tuple[int, int]  # user and group id inside
    cgroup_parent: str | None = None  # control group to live under, or None for the engine's own
    cpus: frozenset[int] = frozenset()  # numbers of the processors that they run on, or empty for all


def container_config(launch: Launch, defaults: ContainerDefaults) -> dict[str, Any]:
    """The body of the engine's ``POST /containers/create`` for one run."""
    program = launch.program
    config: dict[str, Any] = {
        "Image": launch.image or defaults.image,
        "User": f"{defaults.user[0]}:{defaults.user[1]}",
        "WorkingDir": f"{JOB_FOLDER}/{launch.working_folder}",
        "Env": [f"{name}={value}" for name, value in _environment(launch).items()],
        "Labels": {
            LABEL_NODE: defaults.node_id,
            LABEL_INSTANCE: defaults.instance,
            LABEL_RUN: launch.run_id,
            **({LABEL_ENVIRONMENT: f"{launch.environment_key}/{launch.environment_made}"} if launch.python else {}),
        },
        "NetworkDisabled": True,
        "HostConfig": _host_config(launch, defaults),
    }
    if not program.is_images:
        python = f"{CONTAINER_ENVIRONMENT}/bin/python" if launch.python else "python"
        command = launch.command(python, JOB_FOLDER, signals=ranks.PASSED_ON)
        config["Entrypoint"], *config["Cmd"] = command_with_secrets(command) if launch.secrets else command
        if launch.secrets:
            config |= {"OpenStdin": True, "StdinOnce": True}
    elif program.arguments:
        config["Cmd"] = list(program.arguments)
    return config


def asking_config(image_id: str, program: str, defaults: ContainerDefaults) -> dict[str, Any]:
    """The same for a Python program that an image is asked by: it can compute for a moment, and write its answer."""
    asking = Launch("", Path(), Program(), memory_bytes=_ASKING_BYTES, share=CpuShare(_ASKING_WEIGHT, 1.0))
    host = _host_config(asking, defaults)
    # Without our first process in it the engine says by itself that there is no such program.
    host |= {"Mounts": [], "Init": False, "PidsLimit": _ASKING_PROCESSES, "LogConfig": {"Type": "none"}}
    return {
        "Image": image_id,
        "User": f"{defaults.user[0]}:{defaults.user[1]}",
        "WorkingDir": "/",
        "Env": ["HOME=/tmp", "PYTHONNOUSERSITE=1", "NVIDIA_VISIBLE_DEVICES=void"],
        "Labels": {LABEL_NODE: defaults.node_id, LABEL_INSTANCE: defaults.instance},
        "NetworkDisabled": True,
        "HostConfig": host,
        "Entrypoint": ["python"],
        "Cmd": ["-c", program],
    }


def search_path(image: Mapping[str, Any]) -> str:
    """Where an image looks for programs."""
    variables = dict(each.partition("=")[::2] for each in (image.get("Config") or {}).get("Env") or ())
    return variables.get("PATH") or _ENGINES_PATH


def share_config(share: CpuShare) -> dict[str, int]:
    """The part of the configuration that the engine's ``POST /containers/ID/update`` can change while it runs.

    Never ``NanoCpus``: it excludes a quota, and 0 means "as before" to the engine. -1 takes a quota away.
    """
    quota = mapping.quota_microseconds(share.cap_cores)
    return {
        "CpuShares": mapping.v1_shares(share.weight),
        "CpuPeriod": mapping.PERIOD_MICROSECONDS,
        "CpuQuota": -1 if quota is None else quota,
    }


def device_request(ids: Sequence[str]) -> dict[str, Any]:
    """A request for exactly these accelerators: what ``docker run --gpus device=...`` sends."""
    return {"Driver": "", "DeviceIDs": list(ids), "Capabilities": [["gpu"]]}


def _read_only(path: Path, inside: str) -> dict[str, Any]:
    """What a container sees and cannot change: nothing can be written there, nor mounted from there to the machine."""
    return {
        "Type": "bind",
        "Source": str(path),
        "Target": inside,
        "ReadOnly": True,
        "BindOptions": {"Propagation": "rprivate"},
    }


def _environment(launch: Launch) -> dict[str, str]:
    known = replace(launch, secrets={})  # the engine keeps what it is told
    environment = known.environment(JOB_FOLDER) | launch.places(in_container=True)
    if launch.python:  # first, so that what it starts by name is of the same environment
        environment["PATH"] = f"{CONTAINER_ENVIRONMENT}/bin:{launch.search_path}"
    if launch.accelerators:  # the engine says which by its own request
        return environment
    # Where NVIDIA's runtime is the engine's default one, an image may ask for all devices; this takes that back.
    return environment | {"NVIDIA_VISIBLE_DEVICES": "void"}


def _host_config(launch: Launch, defaults: ContainerDefaults) -> dict[str, Any]:
    config: dict[str, Any] = {
        "NetworkMode": "none",
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "PidsLimit": PIDS_LIMIT * launch.ranks,
        "OomScoreAdj": ENDED_FIRST,
        "Init": True,  # forwards SIGTERM, which a first process ignores by default, and reaps orphans
        "Tmpfs": {"/tmp": f"rw,noexec,nosuid,nodev,mode=1777,size={_SCRATCH_BYTES}"},  # noqa: S108 - in the container
        "Mounts": [
            {"Type": "bind", "Source": str(launch.job_folder), "Target": JOB_FOLDER},
            *(_read_only(each.path, each.inside) for each in launch.data),
            *([_read_only(Path(launch.python).parents[1], CONTAINER_ENVIRONMENT)] if launch.python else []),
            *([{"Type": "bind", "Source": str(launch.scratch), "Target": CONTAINER_SCRATCH}] if launch.scratch else []),
        ],
        "LogConfig": {"Type": "local", "Config": {"max-size": str(LOG_FILE_BYTES), "max-file": "2"}},
        "Ulimits": [{"Name": "nofile", "Soft": _OPEN_FILES, "Hard": _OPEN_FILES}],
        "RestartPolicy": {"Name": "no"},
        **share_config(launch.share),
    }
    if launch.accelerators:
        config["DeviceRequests"] = [device_request([share.id for share in launch.accelerators])]
    if launch.ranks > 1:
        config["ShmSize"] = _SHARED_BYTES
    if launch.memory_bytes:
        config |= {"Memory": launch.memory_bytes, "MemorySwap": launch.memory_bytes}
    if defaults.cgroup_parent:
        config["CgroupParent"] = defaults.cgroup_parent
    if defaults.cpus:
        config["CpusetCpus"] = ",".join(map(str, sorted(defaults.cpus)))
    return config
