"""Load → verify → build → warm → flip → drain → release, all of it off the request path."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tiercel.serving import repository
from tiercel.serving.errors import ArtefactRefusedError, NotFoundError, ServingError
from tiercel.serving.loader import Loader
from tiercel.serving.registry import LoadedVersion, ModelRecord, Registry, VersionState

_logger = logging.getLogger(__name__)

StartTask = Callable[[Coroutine[Any, Any, None], str], object]


class Lifecycle:
    """Brings versions up and down.

    Args:
        root: The repository's folder.
        registry: Where what is live is kept.
        loader: Makes sessions of what lies there.
        start_task: Starts a task that somebody owns; used for draining old versions.
    """

    def __init__(self, root: Path, registry: Registry, loader: Loader, start_task: StartTask) -> None:
        self._root = root
        self._registry = registry
        self._loader = loader
        self._start_task = start_task
        self._locks: dict[str, asyncio.Lock] = {}

    async def load(self, name: str) -> int:
        """Let the newest version on disk answer; doing it twice is doing it once.

        Returns:
            The version that is live now.

        Raises:
            InvalidRequestError: The name is impossible.
            NotFoundError: There is no version of it on disk.
            ArtefactRefusedError: The newest version is not fit; what was live stays live.
        """
        await self._versions(name)  # a name that is not on disk gets no lock
        async with self._locks.setdefault(name, asyncio.Lock()):
            newest = (await self._versions(name))[0]
            record = self._registry.record(name)
            if record.live is None or record.live.version != newest:
                await self._bring_up(record, newest)
            return newest

    async def unload(self, name: str) -> None:
        """Stop answering for a model; requests in flight finish.

        Raises:
            NotFoundError: The model was never loaded.
        """
        record = self._registry.known(repository.checked_name(name))
        if record is None:
            raise NotFoundError(f"model '{name}' is not loaded")
        async with self._locks.setdefault(name, asyncio.Lock()):
            self._retire(record.flip(None), record, "unloaded")

    async def load_all(self) -> None:
        """Load each model of the repository: the newest version that passes."""
        names = await self._loader.look_up(repository.model_names, self._root)
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(self._load_first(name), name=f"load {name}")
        self._registry.ready = True

    async def index(self, only_ready: bool) -> list[dict[str, str]]:
        """The repository's index as the protocol has it."""
        on_disk = await self._loader.look_up(repository.model_names, self._root)
        return [
            {"name": line.name, "version": line.version, "state": line.state, "reason": line.reason}
            for line in self._registry.index(on_disk, only_ready)
        ]

    async def _load_first(self, name: str) -> None:
        async with self._locks.setdefault(name, asyncio.Lock()):
            if self._registry.record(name).live is None:
                try:
                    await self._load_newest_good(name)
                except Exception:  # the other models are not to blame
                    _logger.exception("Model '%s' could not be loaded", name)

    async def _load_newest_good(self, name: str) -> None:
        record = self._registry.record(name)
        for version in await self._loader.look_up(repository.versions_on_disk, self._root, name):
            try:
                await self._bring_up(record, version)
            except ServingError as error:
                _logger.warning("%s", error.message)
            else:
                return

    async def _versions(self, name: str) -> list[int]:
        versions = await self._loader.look_up(repository.versions_on_disk, self._root, name)
        if not versions:
            raise NotFoundError(f"model '{name}' has no version on disk; put one at {name}/1/model.onnx")
        return versions

    async def _bring_up(self, record: ModelRecord, version: int) -> None:
        record.set_status(version, VersionState.LOADING)
        artefact = repository.artefact(self._root, record.name, version)
        try:
            session = await self._loader.session(artefact)
        except ArtefactRefusedError as error:
            record.refusals += 1
            record.set_status(version, VersionState.UNAVAILABLE, error.message)
            still = f"version {record.live.version} stays live" if record.live else "no version of it is live"
            raise ArtefactRefusedError(
                f"version {version} of model '{record.name}' was refused: {error.message}; {still}"
            ) from error
        except BaseException:
            record.set_status(version, VersionState.UNAVAILABLE, "loading it was broken off")
            raise
        statistics = record.statistics_of(version)
        old = record.flip(LoadedVersion(record.name, version, session, record.account, statistics))
        _logger.info("Version %d of model '%s' is live", version, record.name)
        self._retire(old, record, f"replaced by version {version}")

    def _retire(self, old: LoadedVersion | None, record: ModelRecord, reason: str) -> None:
        if old is not None:
            self._start_task(self._drain(old, record, reason), f"drain {old.model} {old.version}")

    async def _drain(self, old: LoadedVersion, record: ModelRecord, reason: str) -> None:
        await old.wait_drained()
        await self._loader.free(old.close())
        if record.live is None or record.live.version != old.version:
            record.set_status(old.version, VersionState.UNAVAILABLE, reason)
