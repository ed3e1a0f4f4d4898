"""A run that is a container, from its first moment to its removal."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
from collections.abc import AsyncIterator
from typing import Any, Final

import aiohttp
from aiodocker import Docker, DockerError
from aiodocker.containers import DockerContainer

from tiercel.trainer_agent.errors import RunFailedError
from tiercel.trainer_agent.limits.container_counters import ContainerCounters
from tiercel.trainer_agent.limits.contract import CpuShare, Usage
from tiercel.trainer_agent.limits.cpu_priority import RunPriority
from tiercel.trainer_agent.runtimes.containers.config import share_config
from tiercel.trainer_agent.runtimes.containers.engine_calls import (
    CONFLICT,
    NOT_FOUND,
    EngineError,
    message_of,
    remove,
    update,
)
from tiercel.trainer_agent.runtimes.containers.logs import ContainerLog
from tiercel.trainer_agent.runtimes.contract import OUT_OF_MEMORY, Exit, Output

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.5
_WHY_SECONDS: Final = 1.0
_MOST_REFUSALS: Final = 10
_FIRST_SIGNAL_CODE: Final = 128
_LAST_SIGNAL: Final = 64


class DockerRun:
    """A run that is a container.

    Args:
        counters: The kernel's counters of its use, or None where only the engine can see them.
        note: What its tenant should read about how it was started.
        is_warm: Whether it waited for the run.
    """

    def __init__(
        self,
        docker: Docker,
        container: DockerContainer,
        counters: ContainerCounters | None,
        priority: RunPriority,
        image_id: str = "",
        note: str = "",
        *,
        is_warm: bool = False,
    ) -> None:
        self.image_id = image_id
        self.note = note
        self.is_warm = is_warm
        self._docker = docker
        self._container = container
        self._counters = counters
        self._priority = priority
        self._usage = Usage()
        self._exit: Exit | None = None
        self._is_stopping = False
        self._closed = False

    @property
    def description(self) -> str:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`."""
        return f"container {self._container.id[:12]}{', started warm' * self.is_warm}"

    def output(self, position: str = "") -> AsyncIterator[Output]:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`; a position is a time of the engine's.

        The engine keeps the newest only: of what was written while nobody read it, some may be missing.
        """
        return self._log(position).chunks()

    async def has_begun(self) -> bool:
        """Whether anything of it has run: an agent may die between the first and the last that a warm start takes."""
        return not self.is_warm or await self._log().has_begun()

    async def wait(self) -> Exit:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`; an engine that is away is waited for."""
        while self._exit is None:
            try:
                await self._container.wait()
                self._exit = await self._ask_how_it_ended()
            except EngineError as error:
                if isinstance(error, DockerError) and error.status == NOT_FOUND:
                    self._exit = Exit(-9, "The container was removed by somebody else.")
                    break
                _log.info("the engine does not tell how %s ended, asking again: %s", self.description, error)
                await asyncio.sleep(_RETRY_SECONDS)
        return self._exit

    async def stop(self, grace_seconds: float) -> None:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`."""
        if self._exit is not None:
            return
        self._is_stopping = True
        limit = aiohttp.ClientTimeout(total=grace_seconds + 30)
        try:
            await self._container.stop(t=math.ceil(grace_seconds), timeout=limit)
        except EngineError as error:
            if not (isinstance(error, DockerError) and error.status == NOT_FOUND):
                raise RunFailedError(f"The engine does not stop {self.description}: {message_of(error)}.") from error
        await self.wait()

    async def apply_share(self, share: CpuShare) -> None:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`."""
        try:
            await update(self._docker, self._container.id, share_config(share))
        except EngineError as error:
            if not (isinstance(error, DockerError) and error.status in {NOT_FOUND, CONFLICT}):
                raise RunFailedError(f"The engine does not set the share: {message_of(error)}.") from error
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
                await remove(self._container)
            except EngineError as error:
                # One that answers, and does not do it, will hardly change its mind.
                refusals += isinstance(error, DockerError)
                _log.info("the engine does not remove %s, asking again: %s", self.description, message_of(error))
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return
        _log.error("%s could not be removed; the next start of the agent does it", self.description)

    def _log(self, position: str = "") -> ContainerLog:
        return ContainerLog(self._docker, self._container.id, self._is_running, position, waited=self.is_warm)

    async def _ask_how_it_ended(self) -> Exit:
        found = _exit_of((await self._container.show())["State"])
        if found.code != -signal.SIGKILL or found.reason or self._is_stopping:
            return found
        # That memory was short comes by an event of its own, behind that of the end.
        await asyncio.sleep(_WHY_SECONDS)
        return _exit_of((await self._container.show())["State"])

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
            return not (isinstance(error, DockerError) and error.status == NOT_FOUND)


def _exit_of(state: dict[str, Any]) -> Exit:
    code = int(state["ExitCode"])
    # A shell and docker-init say 128 + N when signal N ended the program.
    if _FIRST_SIGNAL_CODE < code <= _FIRST_SIGNAL_CODE + _LAST_SIGNAL:
        code = _FIRST_SIGNAL_CODE - code
    if state.get("OOMKilled"):
        return Exit(code, OUT_OF_MEMORY)
    return Exit(code, str(state.get("Error") or ""))
