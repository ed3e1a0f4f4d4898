"""Runs as containers of a Docker engine, through aiodocker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from aiodocker import Docker
from aiodocker.containers import DockerContainer

from tiercel.core.errors import SetupError
from tiercel.trainer_agent.errors import RunFailedError
from tiercel.trainer_agent.limits.container_counters import find_counters
from tiercel.trainer_agent.limits.cpu_priority import KERNEL_DEFAULT, CpuPriority, RunPriority
from tiercel.trainer_agent.runtimes.containers.config import (
    LABEL_INSTANCE,
    ContainerDefaults,
    container_config,
    search_path,
)
from tiercel.trainer_agent.runtimes.containers.engine_calls import (
    CALL,
    EngineError,
    message_of,
    remove,
    why_not_created,
)
from tiercel.trainer_agent.runtimes.containers.image_python import ImagePython
from tiercel.trainer_agent.runtimes.containers.run import DockerRun
from tiercel.trainer_agent.runtimes.containers.secrets import hand_over, own_command
from tiercel.trainer_agent.runtimes.containers.waiting_config import LABEL_WAITING
from tiercel.trainer_agent.runtimes.containers.waiting_containers import WaitingContainers
from tiercel.trainer_agent.runtimes.contract import Launch
from tiercel.trainer_agent.runtimes.processes.templates import TemplateSettings
from tiercel.trainer_agent.runtimes.warm.history import WarmHistory

_log = logging.getLogger(__name__)

_UNPRIVILEGED: Final = 65532
_GREETING_SECONDS: Final = 5.0
_NEVER_STARTED: Final = "created"
# What engines say that have no NVIDIA runtime, or one that has no driver: Moby's own words, those of the device
# interface that newer ones try first, and those of NVIDIA's hook.
_NO_ACCELERATORS: Final = (
    "could not select device driver",
    "gpu vendor from cdi",
    "cdi device",
    "nvidia-container-cli",
)


class DockerRuntime:
    """Starts runs as containers. Made by :meth:`connect`.

    Args:
        priority: Who computes first; without effect where the engine runs on another machine.
    """

    name = "docker"

    def __init__(self, docker: Docker, defaults: ContainerDefaults, priority: CpuPriority = KERNEL_DEFAULT) -> None:
        self._docker = docker
        self._defaults = defaults
        self._priority = priority
        self.image_python = ImagePython(docker, defaults)
        self._waiting: WaitingContainers | None = None

    def start_warm(self, folder: Path, settings: TemplateSettings) -> WaitingContainers:
        """Keep containers that wait for runs, from now on."""
        self._waiting = WaitingContainers(self._docker, self._defaults, WarmHistory(folder), settings)
        return self._waiting

    @classmethod
    async def connect(
        cls,
        host: str,
        *,
        node_id: str,
        instance: str,
        image: str,
        cgroup_parent: str | None = None,
        priority: CpuPriority = KERNEL_DEFAULT,
        cpus: frozenset[int] = frozenset(),
    ) -> Self:
        """Greet the engine and be ready to start containers.

        Args:
            host: Where it listens, e.g. ``unix:///var/run/docker.sock``.
            node_id: The node, for labels.
            instance: Tells agents of the same node id but another state directory apart.
            image: Image of jobs that name none.
            cgroup_parent: Control group for containers, used if the engine manages groups by plain paths.
            priority: Who computes first.
            cpus: Numbers of the processors that containers run on, or empty for all.

        Raises:
            SetupError: It does not answer.
        """
        docker = None
        try:
            docker = Docker(url=host, timeout=CALL)
            async with asyncio.timeout(_GREETING_SECONDS):
                info = await docker.system.info()
        except (*EngineError, ValueError) as error:
            if docker is not None:
                await docker.close()
            raise SetupError(
                f"No Docker engine answers at {host} ({message_of(error)}). Start it, name another one with "
                "--docker-host, or leave docker out of --runtimes."
            ) from error
        uid = os.getuid() or _UNPRIVILEGED
        gid = os.getgid() if os.getuid() else _UNPRIVILEGED
        parent = cgroup_parent if info.get("CgroupDriver") == "cgroupfs" else None
        return cls(docker, ContainerDefaults(node_id, instance, image, (uid, gid), parent, cpus), priority)

    @property
    def owner(self) -> tuple[int, int] | None:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.Runtime`."""
        return self._defaults.user

    async def start(self, launch: Launch) -> DockerRun:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.Runtime`."""
        name, note = self._name(launch.run_id), ""
        container = None
        if launch.python:
            launch = await self._with_search_path(launch)
        if self._waiting is not None:
            container, note = await self._waiting.take(launch, name)
        is_warm = container is not None
        if container is None:
            container = await self._start_cold(launch, name)
        pid, image_id = await _look_at(container)
        counters = find_counters(pid) if pid else None
        priority = RunPriority(self._priority, launch.cpu_cores)
        if counters is not None:  # it is a process of this machine
            priority.begin(pid, launch.share)
        return DockerRun(self._docker, container, counters, priority, image_id, note, is_warm=is_warm)

    async def _start_cold(self, launch: Launch, name: str) -> DockerContainer:
        """A container of the run's own, which has begun."""
        try:
            if launch.secrets and launch.program.is_images:
                launch = await self._with_own_command(launch)
            container = await self._docker.containers.create(container_config(launch, self._defaults), name=name)
        except EngineError as error:
            raise RunFailedError(why_not_created(launch.image, self._defaults.image, error)) from error
        try:
            await container.start()
            if launch.secrets:
                await hand_over(container, launch.secrets)
        except EngineError as error:
            with contextlib.suppress(*EngineError):  # what is left of it goes when the agent starts the next time
                await remove(container)
            raise RunFailedError(_why_not_started(launch, error)) from error
        return container

    async def _with_own_command(self, launch: Launch) -> Launch:
        """With the command of its image, which the engine adds only where nothing stands before it."""
        image = await self._docker.images.inspect(launch.image or self._defaults.image)
        command = own_command(image, launch.program.arguments)
        return replace(launch, program=replace(launch.program, command_line=command, arguments=()))

    async def _with_search_path(self, launch: Launch) -> Launch:
        """With where its image looks for programs, as those of its environment come before."""
        try:
            image = await self._docker.images.inspect(launch.image or self._defaults.image)
        except EngineError as error:
            raise RunFailedError(why_not_created(launch.image, self._defaults.image, error)) from error
        return replace(launch, search_path=search_path(image))

    async def adopt(self, launch: Launch) -> DockerRun | None:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.Runtime`."""
        for container in await self._containers_of_earlier_lives():
            if self._run_of(container) != launch.run_id or container["State"] == _NEVER_STARTED:
                continue
            is_warm = LABEL_WAITING in container["Labels"]
            pid, image_id = await _look_at(container)
            counters = find_counters(pid) if pid else None
            priority = RunPriority(self._priority, launch.cpu_cores)
            if counters is not None:
                priority.resume(pid)
            run = DockerRun(self._docker, container, counters, priority, image_id, is_warm=is_warm)
            try:
                if await run.has_begun():
                    return run
            except EngineError as error:
                raise RunFailedError(
                    f"The engine does not say what {run.description} does: {message_of(error)}."
                ) from error
        return None

    async def images(self) -> Sequence[str]:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.Runtime`."""
        try:
            images = await self._docker.images.list()
        except EngineError as error:
            _log.warning("the engine does not list its images: %s", message_of(error))
            return ()
        return sorted(tag for image in images for tag in image.get("RepoTags") or () if tag != "<none>:<none>")

    async def remove_leftovers(self, kept: Collection[str]) -> None:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.Runtime`."""
        for container in await self._containers_of_earlier_lives():
            if self._run_of(container) in kept:
                continue
            _log.warning("removing container %s, left over from an earlier life of this agent", container.id[:12])
            try:
                await remove(container)
            except EngineError as error:
                raise _leftovers_stay(error) from error

    async def close(self) -> None:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.Runtime`."""
        if self._waiting is not None:
            await self._waiting.close()
        await self._docker.close()

    def _name(self, run_id: str) -> str:
        """Of a run's container: it may have had other labels before it was the run's, and another name."""
        return f"tiercel-{self._defaults.instance}-{run_id}"

    def _run_of(self, container: DockerContainer) -> str:
        """The run whose container it is, or nothing."""
        name = str((container["Names"] or ("",))[0])
        return name.removeprefix(start) if name.startswith(start := f"/{self._name('')}") else ""

    async def _containers_of_earlier_lives(self) -> list[DockerContainer]:
        wanted = [f"{LABEL_INSTANCE}={self._defaults.instance}"]
        try:
            return await self._docker.containers.list(all=True, filters=json.dumps({"label": wanted}))
        except EngineError as error:
            raise _leftovers_stay(error) from error


def _leftovers_stay(error: BaseException) -> SetupError:
    return SetupError(
        f"Containers of an earlier life of this agent cannot be looked after ({message_of(error)}). Look after the "
        "Docker engine, then start the agent again."
    )


def _why_not_started(launch: Launch, error: BaseException) -> str:
    said = message_of(error)
    if launch.accelerators and any(sign in said.lower() for sign in _NO_ACCELERATORS):
        return (
            "The Docker engine of this node cannot give accelerators to containers: install the NVIDIA Container "
            "Toolkit there, run `nvidia-ctk runtime configure --runtime=docker`, and restart the engine; or submit the "
            f"job with the process runtime. The engine says: {said}."
        )
    return f"The container could not be started: {said}."


async def _look_at(container: DockerContainer) -> tuple[int, str]:
    """The container's first process as the engine's machine numbers it, 0 when it has ended; the id of its image."""
    try:
        shown = await container.show()
        return int(shown["State"]["Pid"]), str(shown.get("Image") or "")
    except EngineError as error:
        _log.debug("no process of container %s: %s", container.id[:12], error)
        return 0, ""
