"""Versions in the artefact store, so that they answer again when every node that had them is lost."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tiercel.broker.actors.endpoint_messages import VersionStored
from tiercel.broker.lifecycle import replicas, versions
from tiercel.core.errors import CannotWriteError, NotFoundError, QuotaExceededError, StoreDamagedError
from tiercel.core.tasks import run_in_thread

if TYPE_CHECKING:
    from tiercel.broker.actors.artefacts.own import OwnArtefacts
    from tiercel.broker.actors.endpoint import EndpointActor
    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.broker.store.version_files import VersionStore
    from tiercel.core.checkpoints import Artefact
    from tiercel.core.endpoints import Version

logger = logging.getLogger(__name__)


class VersionKeeper:
    """Keeps the versions that may answer: a :class:`~.keeper.Kind`."""

    def __init__(self, own: OwnArtefacts, files: VersionStore, registry: ActorRegistry) -> None:
        self._own = own
        self._files = files
        self._registry = registry
        # What endpoints were told that the store has, until they have noted it.
        self._told: dict[tuple[str, int], Artefact] = {}
        # Of one that could not be stored: why; said once in the log.
        self._problems: dict[tuple[str, int], str] = {}

    async def look(self) -> None:
        """See :class:`~.keeper.Kind`."""
        kept = {
            (name, version.version): version
            for name, actor in self._registry.endpoints.items()
            for version in versions.kept(actor.endpoint)
        }
        self._told = {
            key: artefact for key, artefact in self._told.items() if key in kept and kept[key].stored != artefact
        }
        self._problems = {key: problem for key, problem in self._problems.items() if key in kept}
        for actor in list(self._registry.endpoints.values()):
            for version in actor.from_store:
                await self._bring_back(actor, version)
            await self._store(actor)

    def needed(self) -> set[str]:
        """See :class:`~.keeper.Kind`: what may answer, or be gone back to."""
        told = {artefact.sha256 for artefact in self._told.values()}
        endpoints = [actor.endpoint for actor in self._registry.endpoints.values()]
        kept = [version.stored for endpoint in endpoints for version in versions.kept(endpoint)]
        return told | {stored.sha256 for stored in kept if stored is not None}

    async def tell(self, problem: str) -> None:
        """See :class:`~.keeper.Kind`: it stands in the log."""

    async def _store(self, actor: EndpointActor) -> None:
        name = actor.endpoint.name
        for version in versions.kept(actor.endpoint):
            if version.stored is not None and version.stored.sha256 not in self._own.held:  # somebody removed it
                await actor.send(VersionStored(version.version, version.sha256, None))
        held = self._files.held(name)
        for version in replicas.unstored(actor.endpoint):
            key = name, version.version
            if key in self._told or held.get(version.version) != version.sha256:
                continue
            source = self._files.open_whole(*key)
            if source is None:
                continue
            with source:
                try:
                    artefact = await self._own.put(source)
                except (QuotaExceededError, StoreDamagedError) as error:  # of this one alone
                    self._say(key, error.message)
                    continue
            self._told[key] = artefact
            await actor.send(VersionStored(version.version, version.sha256, artefact))

    async def _bring_back(self, actor: EndpointActor, version: Version) -> None:
        name, number, artefact = actor.endpoint.name, version.version, version.stored
        if artefact is None:
            return
        try:
            with self._files.taking_back(name, number, version.sha256, artefact.size_bytes) as place:
                await self._own.get(artefact, place)
        except (NotFoundError, StoreDamagedError) as error:
            logger.warning("endpoint %s, version %d: %s", name, number, error.message)
            await actor.send(VersionStored(number, version.sha256, None))
        except CannotWriteError as error:  # it waits for room, others may be smaller
            self._say((name, number), error.message)
        else:
            self._problems.pop((name, number), None)
            await run_in_thread(self._files.finished, name, number)
            self._registry.look_after_replicas()

    def _say(self, key: tuple[str, int], problem: str) -> None:
        if self._problems.get(key) != problem:
            logger.warning("endpoint %s, version %d: %s", *key, problem)
            self._problems[key] = problem
