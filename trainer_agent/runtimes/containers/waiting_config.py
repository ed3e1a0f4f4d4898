"""What a container looks like to the engine that waits for its run: as the run's own, but for what is that run's alone.

Made by what makes those of runs, so that whatever holds for them holds for it. A job's folder, its data and its scratch
folder have places in it, which are empty until a run comes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tiercel.trainer_agent.data.mounts import CONTAINER_FOLDER
from tiercel.trainer_agent.limits.contract import CpuShare
from tiercel.trainer_agent.limits.entering import ENDED_FIRST
from tiercel.trainer_agent.limits.groups import TEMPLATES_WEIGHT
from tiercel.trainer_agent.runtimes.containers.config import (
    JOB_FOLDER,
    LABEL_RUN,
    ContainerDefaults,
    container_config,
    share_config,
)
from tiercel.trainer_agent.runtimes.containers.waiting import START
from tiercel.trainer_agent.runtimes.contract import CONTAINER_SCRATCH, Launch, Program
from tiercel.trainer_agent.runtimes.warm.script import WarmOrder

LABEL_WAITING: Final = "tiercel.waiting"
"""Of containers that waited for their run, or wait still; the run's id is in the name of the container."""

_PLACES: Final = (JOB_FOLDER, CONTAINER_SCRATCH, CONTAINER_FOLDER)
_PLACE_BYTES: Final = 1 << 16
_MEMORY_BYTES: Final = 2 * 1024**3
# The engine takes no limit away; this is more than any machine has.
_NO_LIMIT_BYTES: Final = 1 << 60
_OF_RUN: Final = ("Image", "WorkingDir", "Env", "Labels", "Entrypoint", "Cmd", "OpenStdin", "StdinOnce", "HostConfig")
_OF_RUN_ON_HOST: Final = ("Mounts", "Memory", "MemorySwap", *share_config(CpuShare(1.0)))


def waiting_config(launch: Launch, defaults: ContainerDefaults, image_id: str, names: Sequence[str]) -> dict[str, Any]:
    """The body of the engine's ``POST /containers/create`` for a container that waits for runs like this one."""
    like = replace(
        launch,
        run_id="",
        program=Program(command_line=("python", "-c", START, "1", *names)),
        working_folder="",
        image=image_id,
        cpu_cores=1.0,
        ranks=1,
        memory_bytes=_MEMORY_BYTES,
        share=CpuShare(TEMPLATES_WEIGHT),
        variables={},
        secrets={},
        data=(),
        scratch=None,
    )
    config = container_config(like, defaults)
    host = config["HostConfig"]
    fixed = [each for each in host["Mounts"] if each["Target"] not in _PLACES]
    labels = {name: value for name, value in config["Labels"].items() if name != LABEL_RUN}
    return config | {
        "WorkingDir": "/",
        "Env": [*config["Env"], "OPENBLAS_NUM_THREADS=1"],  # else numpy starts threads when it is imported
        "Labels": labels | {LABEL_WAITING: "yes"},
        "OpenStdin": True,
        "StdinOnce": True,
        "HostConfig": host | {"Mounts": [*fixed, *map(_place, _PLACES)]},
    }


def config_digest(config: Mapping[str, Any]) -> str:
    """Tells containers apart that differ in anything."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:32]


def why_unlike(config: Mapping[str, Any], waiting: Mapping[str, Any]) -> str:
    """Why a container that waits cannot be that of a run; empty if it can."""
    host, other = config["HostConfig"], waiting["HostConfig"]
    differ = [name for name in config.keys() | waiting.keys() if config.get(name) != waiting.get(name)]
    differ_on_host = [name for name in host.keys() | other.keys() if host.get(name) != other.get(name)]
    unlike = sorted({*differ} - {*_OF_RUN} | {*differ_on_host} - {*_OF_RUN_ON_HOST})
    unlike += [each["Target"] for each in _late(config, waiting) if _place_of(each["Target"]) is None]
    return f"no container that waits has its {unlike[0]}" if unlike else ""


def mounts_to_bring(config: Mapping[str, Any], waiting: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What is to be mounted in a container that waits, as :mod:`.mounting` takes it."""
    return [
        {
            "source": each["Source"],
            "place": place,
            "below": each["Target"].removeprefix(place).strip("/").split("/") if each["Target"] != place else [],
            "read_only": each.get("ReadOnly", False),
        }
        for each in _late(config, waiting)
        if (place := _place_of(each["Target"])) is not None
    ]


def limits_of(config: Mapping[str, Any]) -> dict[str, int]:
    """What a run may use, for the engine's ``POST /containers/ID/update``."""
    host = config["HostConfig"]
    limits = {name: host[name] for name in share_config(CpuShare(1.0))}
    return limits | {name: host.get(name, _NO_LIMIT_BYTES) for name in ("Memory", "MemorySwap")}


def order_of(launch: Launch, config: Mapping[str, Any], image: Mapping[str, Any]) -> WarmOrder:
    """What a container that waits needs to know in order to become a run."""
    variables = [*((image.get("Config") or {}).get("Env") or ()), *config["Env"]]
    environment = {name: value for name, _, value in (each.partition("=") for each in variables)}
    if launch.secrets:
        environment |= {"PWD": config["WorkingDir"], **launch.secrets}  # as the shell that gets them says it
    return WarmOrder(
        script=f"{JOB_FOLDER}/program/{launch.program.script}" if launch.program.script else "",
        module=launch.program.module,
        arguments=launch.program.arguments,
        working_directory=config["WorkingDir"],
        environment=environment,
        threads=launch.threads,
        ended_first=ENDED_FIRST,
    )


def _late(config: Mapping[str, Any], waiting: Mapping[str, Any]) -> list[dict[str, Any]]:
    fixed = waiting["HostConfig"]["Mounts"]
    return [each for each in config["HostConfig"]["Mounts"] if each not in fixed]


def _place_of(target: str) -> str | None:
    return next((place for place in _PLACES if target == place or target.startswith(f"{place}/")), None)


def _place(path: str) -> dict[str, Any]:
    """A folder that nobody but the agent can put anything into."""
    options = {"SizeBytes": _PLACE_BYTES, "Mode": 0o755}
    return {"Type": "tmpfs", "Target": path, "TmpfsOptions": options}
