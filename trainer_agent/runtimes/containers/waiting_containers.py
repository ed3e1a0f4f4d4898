"""The containers of a node that wait for runs: one for a tenant's next run with an image, never for anybody else's.

One is started when a second run of its kind is ordered, once an earlier one has written down what it imported, and
again whenever one was taken. The engine makes them in the background, with little of the CPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aiodocker import Docker
from aiodocker.containers import DockerContainer

from tiercel.trainer_agent.errors import RunFailedError, WarmStartError
from tiercel.trainer_agent.runtimes.containers.config import ContainerDefaults, container_config
from tiercel.trainer_agent.runtimes.containers.engine_calls import EngineError, message_of
from tiercel.trainer_agent.runtimes.containers.waiting_config import (
    config_digest,
    limits_of,
    mounts_to_bring,
    order_of,
    waiting_config,
    why_unlike,
)
from tiercel.trainer_agent.runtimes.containers.waiting_container import WaitingContainer
from tiercel.trainer_agent.runtimes.contract import Launch
from tiercel.trainer_agent.runtimes.processes.templates import TemplateSettings
from tiercel.trainer_agent.runtimes.warm.history import WarmHistory
from tiercel.trainer_agent.runtimes.warm.import_records import Key
from tiercel.trainer_agent.supervision import Background

_log = logging.getLogger(__name__)

_IMPORT_SECONDS: Final = 180.0
_BECOME_SECONDS: Final = 20.0
_REMOVE_SECONDS: Final = 10.0
# As among templates: tenants in turn would else end one another's.
_IN_USE_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Kept:
    """One that waits, or is being made."""

    task: asyncio.Task[None] | None = None
    ready: WaitingContainer | None = None
    used_at: float = field(default_factory=time.monotonic)


class WaitingContainers:
    """All of a node."""

    def __init__(
        self,
        docker: Docker,
        defaults: ContainerDefaults,
        history: WarmHistory,
        settings: TemplateSettings,
    ) -> None:
        self._docker = docker
        self._defaults = defaults
        self._history = history
        self._tasks = Background()
        self._settings = settings
        self._kept: dict[Key, _Kept] = {}

    async def take(self, launch: Launch, name: str) -> tuple[DockerContainer | None, str]:
        """A container that waited and has become a run; or none, and why, if that is worth a word.

        Raises:
            RunFailedError: One that should have become it may still do so; says why.
        """
        is_python = bool(launch.program.script or launch.program.module)
        if not (is_python and launch.warm and launch.tenant) or launch.accelerators or os.geteuid() != 0:
            return None, ""
        if launch.ranks > 1:
            return None, f"started cold: so is each of {launch.ranks} ranks"
        try:
            image = await self._docker.images.inspect(launch.image or self._defaults.image)
        except EngineError:
            return None, ""  # who starts it cold hears the same, and says it
        config = container_config(launch, self._defaults)
        like = waiting_config(launch, self._defaults, image["Id"], ())
        key = Key(launch.tenant, launch.python or "python", config_digest(like))
        self._history.note_order(key, launch.job_folder)
        found = self._kept.get(key)
        if found is None or found.ready is None:
            self._keep_one(key, launch, image["Id"])
            return None, ""
        if reason := why_unlike(config, like):
            return None, f"started cold: {reason}"
        del self._kept[key]
        found.ready.taken.set()
        note = await self._become(key, found.ready, launch, name, (config, like, image))
        self._keep_one(key, launch, image["Id"])
        return (None, f"started cold: {note}") if note else (found.ready.container, "")

    def ready(self) -> dict[Key, str]:
        """The ids of those that wait for a run now."""
        return {key: each.ready.container.id for key, each in self._kept.items() if each.ready is not None}

    async def close(self) -> None:
        """Have none left."""
        await self._tasks.close()

    async def _become(
        self, key: Key, waiting: WaitingContainer, launch: Launch, name: str, known: tuple[Mapping[str, Any], ...]
    ) -> str:
        """Have one be a run; why it is not, and is gone, in plain words, or nothing."""
        config, like, image = known
        try:
            async with asyncio.timeout(_BECOME_SECONDS):
                order = order_of(launch, config, image)
                await waiting.become(name, order, limits_of(config), mounts_to_bring(config, like))
        except (WarmStartError, *EngineError) as error:
            if not isinstance(error, WarmStartError) or error.is_templates_fault:
                self._history.note_failure(key)
            await _remove_or_fail(waiting)
            return _why(error)
        self._history.note_start(key)
        return ""

    def _keep_one(self, key: Key, launch: Launch, image_id: str) -> None:
        """Have one made in the background, if that is worth it and there is none."""
        names = self._history.to_import(key)
        if key in self._kept or not names or not self._make_room():
            return
        kept = self._kept[key] = _Kept()
        config = waiting_config(launch, self._defaults, image_id, names)
        kept.task = self._tasks.start(f"container for {key.tenant}", self._keep(key, kept, config))

    def _make_room(self) -> bool:
        """End the one that was used least recently, if need be; whether there is room now."""
        if len(self._kept) < self._settings.most:
            return True
        oldest = min(self._kept, key=lambda each: self._kept[each].used_at)
        if time.monotonic() - self._kept[oldest].used_at < _IN_USE_SECONDS:
            return False
        task = self._kept.pop(oldest).task
        if task is not None:
            task.cancel()
        return True

    async def _keep(self, key: Key, kept: _Kept, config: Mapping[str, Any]) -> None:
        """Make one, and look after it until it is taken or was not needed for long."""
        waiting = None
        try:
            async with asyncio.timeout(_IMPORT_SECONDS):
                waiting = await WaitingContainer.start(self._docker, config)
                try:
                    await waiting.imported()
                finally:
                    self._history.note_left_out(key, waiting.left_out)
            _log.info("container %s waits for a run of %s", waiting.container.id[:12], key.tenant)
            kept.ready = waiting
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.idle_seconds):
                    await waiting.taken.wait()
        except (WarmStartError, *EngineError) as error:
            self._note_failure(key, error)
        finally:
            if self._kept.get(key) is kept:
                del self._kept[key]
            if waiting is not None and not waiting.taken.is_set():
                with contextlib.suppress(*EngineError):  # what is left of it goes when the agent starts the next time
                    async with asyncio.timeout(_REMOVE_SECONDS):
                        await waiting.remove()

    def _note_failure(self, key: Key, error: BaseException) -> None:
        of_image = isinstance(error, WarmStartError) and not error.is_templates_fault
        if of_image:
            self._history.give_up(key)
        else:
            self._history.note_failure(key)
        _log.warning("no container waits for runs of %s, which start cold: %s", key.tenant, _why(error))


def _why(error: BaseException) -> str:
    return error.message if isinstance(error, WarmStartError) else f"the engine says: {message_of(error)}"


async def _remove_or_fail(waiting: WaitingContainer) -> None:
    """Remove what may become a run still: there must not be two of it."""
    try:
        await waiting.remove()
    except EngineError as error:
        raise RunFailedError(
            f"The container that waited for the run cannot be removed: {message_of(error)}."
        ) from error
