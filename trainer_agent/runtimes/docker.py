"""Runs as containers of a Docker engine, through aiodocker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace
from typing import Any, Final, Self

import aiohttp
from aiodocker import Docker, DockerError
from aiodocker.containers import DockerContainer

from tiercel.core.errors import SetupError
from tiercel.trainer_agent.errors import RunFailedError
from tiercel.trainer_agent.limits.container_counters import ContainerCounters, find_counters
from tiercel.trainer_agent.limits.contract import CpuShare, Usage
from tiercel.trainer_agent.limits.cpu_priority import KERNEL_DEFAULT, CpuPriority, RunPriority
from tiercel.trainer_agent.runtimes.container_config import (
    LABEL_INSTANCE,
    LABEL_RUN,
    ContainerDefaults,
    container_config,
    share_config,
)
from tiercel.trainer_agent.runtimes.container_logs import ContainerLog
from tiercel.trainer_agent.runtimes.container_secrets import hand_over, own_command
from tiercel.trainer_agent.runtimes.contract import Exit, Launch, Output

_log = logging.getLogger(__name__)

_UNPRIVILEGED: Final = 65532
_CALL: Final = aiohttp.ClientTimeout(total=60, sock_connect=10)
_GREETING_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 0.5
_MOST_REFUSALS: Final = 10
_FIRST_SIGNAL_CODE: Final = 128
_LAST_SIGNAL: Final = 64
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_NEVER_STARTED: Final = "created"
# What engines say that have no NVIDIA runtime, or one that has no driver: Moby's own words, those of the device
# interface that newer ones try first, and those of NVIDIA's hook.
_NO_ACCELERATORS: Final = (
    "could not select device driver",
    "gpu vendor from cdi",
    "cdi device",
    "nvidia-container-cli",
)

EngineError = (DockerError, aiohttp.ClientError, TimeoutError, OSError)


class DockerRuntime:
    """Starts runs as containers. Made by :meth:`connect`.

    Args:
        docker: The engine.
        defaults: What all containers have in common.
        priority: Who computes first; without effect where the engine runs on another machine.
    """

    name = "docker"

    def __init__(self, docker: Docker, defaults: ContainerDefaults, priority: CpuPriority = KERNEL_DEFAULT) -> None:
        self._docker = docker
        self._defaults = defaults
        self._priority = priority

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
            docker = Docker(url=host, timeout=_CALL)
            async with asyncio.timeout(_GREETING_SECONDS):
                info = await docker.system.info()
        except (*EngineError, ValueError) as error:
            if docker is not None:
                await docker.close()
            raise SetupError(
                f"No Docker engine answers at {host} ({_message_of(error)}). Start it, name another one with "
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
        name = f"tiercel-{self._defaults.instance}-{launch.run_id}"
        try:
            if launch.secrets and launch.program.is_images:
                launch = await self._with_own_command(launch)
            container = await self._docker.containers.create(container_config(launch, self._defaults), name=name)
        except EngineError as error:
            raise RunFailedError(self._why_not_created(launch, error)) from error
        try:
            await container.start()
            if launch.secrets:
                await hand_over(container, launch.secrets)
        except EngineError as error:
            with contextlib.suppress(*EngineError):  # what is left of it goes when the agent starts the next time
                await _remove(container)
            raise RunFailedError(_why_not_started(launch, error)) from error
        pid, image_id = await _look_at(container)
        counters = find_counters(pid) if pid else None
        priority = RunPriority(self._priority, launch.cpu_cores)
        if counters is not None:  # it is a process of this machine
            priority.begin(pid, launch.share)
        return DockerRun(self._docker, container, counters, priority, image_id)

    async def _with_own_command(self, launch: Launch) -> Launch:
        """With the command of its image, which the engine adds only where nothing stands before it."""
        image = await self._docker.images.inspect(launch.image or self._defaults.image)
        command = own_command(image, launch.program.arguments)
        return replace(launch, program=replace(launch.program, command_line=command, arguments=()))

    async def adopt(self, launch: Launch) -> DockerRun | None:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.Runtime`."""
        for container in await self._containers_of_earlier_lives(f"{LABEL_RUN}={launch.run_id}"):
            if container["State"] == _NEVER_STARTED:
                continue
            pid, image_id = await _look_at(container)
            counters = find_counters(pid) if pid else None
            priority = RunPriority(self._priority, launch.cpu_cores)
            if counters is not None:
                priority.resume(pid)
            return DockerRun(self._docker, container, counters, priority, image_id)
        return None

    async def images(self) -> Sequence[str]:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.Runtime`."""
        try:
            images = await self._docker.images.list()
        except EngineError as error:
            _log.warning("the engine does not list its images: %s", _message_of(error))
            return ()
        return sorted(tag for image in images for tag in image.get("RepoTags") or () if tag != "<none>:<none>")

    async def remove_leftovers(self, kept: Collection[str]) -> None:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.Runtime`."""
        for container in await self._containers_of_earlier_lives():
            if container["Labels"].get(LABEL_RUN) in kept:
                continue
            _log.warning("removing container %s, left over from an earlier life of this agent", container.id[:12])
            try:
                await _remove(container)
            except EngineError as error:
                raise _leftovers_stay(error) from error

    async def close(self) -> None:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.Runtime`."""
        await self._docker.close()

    async def _containers_of_earlier_lives(self, *labels: str) -> list[DockerContainer]:
        wanted = [f"{LABEL_INSTANCE}={self._defaults.instance}", *labels]
        try:
            return await self._docker.containers.list(all=True, filters=json.dumps({"label": wanted}))
        except EngineError as error:
            raise _leftovers_stay(error) from error

    def _why_not_created(self, launch: Launch, error: BaseException) -> str:
        image = launch.image or self._defaults.image
        if isinstance(error, DockerError) and error.status == _NOT_FOUND:
            if image == self._defaults.image:
                return f"The image {image} is not on this node: build it there with `make image`."
            return f"The image {image} is not on this node: pull or build it there, or leave the image out of the job."
        return f"The Docker engine did not create the container: {_message_of(error)}."


class DockerRun:
    """A run that is a container.

    Args:
        docker: The engine.
        container: The container, started.
        counters: The kernel's counters of its use, or None where only the engine can see them.
        priority: Its priority among runs.
        image_id: Id of its image, or empty.
    """

    note = ""

    def __init__(
        self,
        docker: Docker,
        container: DockerContainer,
        counters: ContainerCounters | None,
        priority: RunPriority,
        image_id: str = "",
    ) -> None:
        self.image_id = image_id
        self._docker = docker
        self._container = container
        self._counters = counters
        self._priority = priority
        self._usage = Usage()
        self._exit: Exit | None = None
        self._closed = False

    @property
    def description(self) -> str:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`."""
        return f"container {self._container.id[:12]}"

    def output(self, position: str = "") -> AsyncIterator[Output]:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`; a position is a time of the engine's.

        The engine keeps the newest only: of what was written while nobody read it, some may be missing.
        """
        return ContainerLog(self._docker, self._container.id, self._is_running, position).chunks()

    async def wait(self) -> Exit:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`; an engine that is away is waited for."""
        while self._exit is None:
            try:
                await self._container.wait()
                self._exit = _exit_of((await self._container.show())["State"])
            except EngineError as error:
                if isinstance(error, DockerError) and error.status == _NOT_FOUND:
                    self._exit = Exit(-9, "The container was removed by somebody else.")
                    break
                _log.info("the engine does not tell how %s ended, asking again: %s", self.description, error)
                await asyncio.sleep(_RETRY_SECONDS)
        return self._exit

    async def stop(self, grace_seconds: float) -> None:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`."""
        if self._exit is not None:
            return
        limit = aiohttp.ClientTimeout(total=grace_seconds + 30)
        try:
            await self._container.stop(t=math.ceil(grace_seconds), timeout=limit)
        except EngineError as error:
            if not (isinstance(error, DockerError) and error.status == _NOT_FOUND):
                raise RunFailedError(f"The engine does not stop {self.description}: {_message_of(error)}.") from error
        await self.wait()

    async def apply_share(self, share: CpuShare) -> None:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`."""
        path = f"containers/{self._container.id}/update"
        try:
            # aiodocker has no call for it
            await self._docker._query_json(path, method="POST", data=share_config(share))  # noqa: SLF001
        except EngineError as error:
            if not (isinstance(error, DockerError) and error.status in {_NOT_FOUND, _CONFLICT}):
                raise RunFailedError(f"The engine does not set the share: {_message_of(error)}.") from error
        self._priority.apply(self.pids, share)

    async def usage(self) -> Usage:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`; what the kernel counts, else the engine."""
        used = self._counters.read() if self._counters is not None else await self._ask_engine()
        if used is not None:
            self._usage = Usage(max(self._usage.cpu_seconds, used.cpu_seconds), used.memory_bytes)
        return self._usage

    def pids(self) -> list[int]:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`; none where the engine runs elsewhere."""
        return self._counters.pids() if self._counters is not None else []

    async def close(self) -> None:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`; an engine that is away is waited for."""
        if self._closed:
            return
        self._closed = True
        refusals = 0
        while refusals < _MOST_REFUSALS:
            try:
                await _remove(self._container)
            except EngineError as error:
                # One that answers, and does not do it, will hardly change its mind.
                refusals += isinstance(error, DockerError)
                _log.info("the engine does not remove %s, asking again: %s", self.description, _message_of(error))
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return
        _log.error("%s could not be removed; the next start of the agent does it", self.description)

    async def _ask_engine(self) -> Usage | None:
        """What the engine measured last; it takes up to a second to say."""
        path = f"containers/{self._container.id}/stats"
        try:
            # aiodocker's call waits for two measurements to form a rate that nobody here needs
            stats = await self._docker._query_json(path, params={"stream": 0, "one-shot": 1})  # noqa: SLF001
        except EngineError as error:
            _log.debug("no usage of %s: %s", self.description, error)
            return None
        cpu_seconds = stats.get("cpu_stats", {}).get("cpu_usage", {}).get("total_usage", 0) / 1e9
        return Usage(cpu_seconds, int(stats.get("memory_stats", {}).get("usage", 0)))

    async def _is_running(self) -> bool:
        if self._exit is not None:
            return False
        try:
            return bool((await self._container.show())["State"]["Running"])
        except EngineError as error:
            return not (isinstance(error, DockerError) and error.status == _NOT_FOUND)


def _leftovers_stay(error: BaseException) -> SetupError:
    return SetupError(
        f"Containers of an earlier life of this agent cannot be looked after ({_message_of(error)}). Look after the "
        "Docker engine, then start the agent again."
    )


def _exit_of(state: dict[str, Any]) -> Exit:
    code = int(state["ExitCode"])
    # A shell and docker-init say 128 + N when signal N ended the program.
    if _FIRST_SIGNAL_CODE < code <= _FIRST_SIGNAL_CODE + _LAST_SIGNAL:
        code = _FIRST_SIGNAL_CODE - code
    if state.get("OOMKilled"):
        return Exit(code, "The run used more memory than its limit and was ended by the kernel.")
    return Exit(code, str(state.get("Error") or ""))


def _why_not_started(launch: Launch, error: BaseException) -> str:
    said = _message_of(error)
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


async def _remove(container: DockerContainer) -> None:
    try:
        await container.delete(force=True, v=True, timeout=_CALL)
    except DockerError as error:
        if error.status not in {_NOT_FOUND, _CONFLICT}:  # gone, or being removed already
            raise


def _message_of(error: BaseException) -> str:
    text = error.message if isinstance(error, DockerError) else str(error)
    return (str(text) or type(error).__name__).strip().rstrip(".")
