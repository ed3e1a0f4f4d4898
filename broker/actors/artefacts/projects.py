"""Projects in the artefact store, so that jobs can be started again by a broker that is made anew."""

from __future__ import annotations

import logging
import tempfile
from typing import TYPE_CHECKING, Final

from tiercel.broker.store.stored_projects import ProjectKey
from tiercel.core.errors import InvalidSpecError, NotFoundError, QuotaExceededError, StoreDamagedError
from tiercel.core.tasks import run_in_thread

if TYPE_CHECKING:
    from pathlib import Path

    from tiercel.broker.actors.artefacts.own import OwnArtefacts
    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.broker.store.projects import ProjectStore
    from tiercel.broker.store.stored_projects import StoredProjects
    from tiercel.core.checkpoints import Artefact

logger = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 60.0
"""When one that could not be stored is tried again: all of it is read for that."""


class ProjectKeeper:
    """Keeps the projects that living jobs run from, each packed into one artefact: a :class:`~.keeper.Kind`.

    Nothing waits for it: a broker that goes on has its projects; one that is made anew gets them before it starts.

    Args:
        own: What the store has.
        projects: Those that tenants have sent.
        stored: Which of them are stored.
        registry: The jobs.
        clock: The time.
        folder: Where one is packed, on a disk with room for it.
    """

    def __init__(
        self,
        own: OwnArtefacts,
        projects: ProjectStore,
        stored: StoredProjects,
        registry: ActorRegistry,
        clock: Clock,
        folder: Path,
    ) -> None:
        self._own = own
        self._projects = projects
        self._stored = stored
        self._registry = registry
        self._clock = clock
        self._folder = folder
        # None before they were read.
        self._known: dict[ProjectKey, Artefact] | None = None
        # Of one that could not be stored: when that was tried, and why; said once in the log.
        self._refused: dict[ProjectKey, tuple[float, str]] = {}

    async def look(self) -> None:
        """See :class:`~.keeper.Kind`."""
        if self._known is None:
            self._known = await self._stored.load()
        wanted = {
            ProjectKey(job.tenant, job.spec.project.sha256)
            for job in self._registry.living_jobs()
            if job.spec.project is not None
        }
        self._refused = {key: refused for key, refused in self._refused.items() if key in wanted}
        if gone := self._known.keys() - wanted:
            await self._stored.remove(gone)
            self._known = {key: artefact for key, artefact in self._known.items() if key in wanted}
        for key in sorted(wanted):
            if key not in self._known or self._known[key].sha256 not in self._own.held:
                await self._store(key, self._known)

    def needed(self) -> set[str]:
        """See :class:`~.keeper.Kind`."""
        if self._known is None:
            return set(self._own.held)
        return {artefact.sha256 for artefact in self._known.values()}

    async def tell(self, problem: str) -> None:
        """See :class:`~.keeper.Kind`: it stands in the log."""

    async def _store(self, key: ProjectKey, known: dict[ProjectKey, Artefact]) -> None:
        tried_at, said = self._refused.get(key, (-AGAIN_SECONDS, ""))
        if self._clock.alive() - tried_at < AGAIN_SECONDS:
            return
        try:
            with tempfile.TemporaryFile(dir=self._folder) as file:
                await run_in_thread(self._projects.pack, key.tenant, key.root, file)
                artefact = await self._own.put(file)
        except (InvalidSpecError, NotFoundError, QuotaExceededError, StoreDamagedError) as error:  # of this one alone
            if error.message != said:
                logger.warning("project %s of tenant %s is not in the store: %s", key.root, key.tenant, error.message)
            self._refused[key] = self._clock.alive(), error.message
            return
        await self._stored.add(key, artefact)
        known[key] = artefact
        self._refused.pop(key, None)
