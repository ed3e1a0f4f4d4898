"""Copies of checkpoints in the artefact store as well, and those that the broker lost brought back."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, BinaryIO

from tiercel.broker.lifecycle.job_events import (
    CheckpointGone,
    CheckpointHeldAgain,
    CheckpointNotStored,
    CheckpointStored,
    Deferred,
)
from tiercel.broker.store.carried import read_manifest
from tiercel.core.checkpoints import StoredCheckpoint
from tiercel.core.errors import (
    CannotWriteError,
    NotFoundError,
    QuotaExceededError,
    StoreDamagedError,
)
from tiercel.core.jobs import JobState

if TYPE_CHECKING:
    from tiercel.broker.actors.artefacts.own import OwnArtefacts
    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.job import JobActor
    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.broker.store.checkpoints import CheckpointStore

logger = logging.getLogger(__name__)


class CheckpointKeeper:
    """Keeps what jobs that live go on from: a :class:`~.keeper.Kind`."""

    def __init__(self, own: OwnArtefacts, checkpoints: CheckpointStore, registry: ActorRegistry, clock: Clock) -> None:
        self._own = own
        self._checkpoints = checkpoints
        self._registry = registry
        self._clock = clock
        # What jobs were told that the store has, until they have noted it.
        self._told: dict[str, StoredCheckpoint] = {}
        # When a job's copy was last tried: one on which the store fails again and again comes after the others.
        self._tried: dict[str, float] = {}

    async def look(self) -> None:
        """See :class:`~.keeper.Kind`."""
        self._forget_what_is_over()
        work = [*self._that_wait_for_their_copy(), *self._that_are_not_stored()]
        for actor in sorted(work, key=lambda actor: self._tried.get(actor.job.id, 0.0)):
            self._tried[actor.job.id] = self._clock.alive()
            if actor.job.awaits_copy:
                await self._bring_back(actor)
            else:
                await self._store(actor)

    def needed(self) -> set[str]:
        """See :class:`~.keeper.Kind`: what jobs go on from."""
        jobs = [actor.job for actor in self._living()]
        told = {stored.artefact.sha256 for stored in self._told.values()}
        return told | {job.stored.artefact.sha256 for job in jobs if job.stored is not None}

    def _living(self) -> list[JobActor]:
        """Those of which the broker or the store has a copy, or should."""
        actors = self._registry.jobs.values()
        return [actor for actor in actors if actor.job.copy is not None and not actor.job.state.is_final]

    def _forget_what_is_over(self) -> None:
        living = {actor.job.id: actor.job for actor in self._living()}
        self._told = {
            job_id: stored
            for job_id, stored in self._told.items()
            if job_id in living and living[job_id].stored != stored
        }
        self._tried = {job_id: at for job_id, at in self._tried.items() if job_id in living}

    def _that_wait_for_their_copy(self) -> list[JobActor]:
        return [actor for actor in self._living() if actor.job.awaits_copy and actor.job.stored is not None]

    def _that_are_not_stored(self) -> list[JobActor]:
        """Those whose copy at the broker is newer than what is stored."""
        found = []
        for actor in self._living():
            stored = self._told.get(actor.job.id, actor.job.stored)
            is_stored = (
                stored is not None and stored.copy == actor.job.copy and stored.artefact.sha256 in self._own.held
            )
            if not actor.job.awaits_copy and not is_stored:
                found.append(actor)
        return found

    async def _store(self, actor: JobActor) -> None:
        """Put a job's copy into the store, unless what it holds belongs to another run by now."""
        job_id, copy = actor.job.id, actor.job.copy
        source = self._checkpoints.open_whole(job_id)
        if source is None or copy is None:
            return
        with source:
            try:
                if _run_of(source) != copy.run_id:
                    return
                artefact = await self._own.put(source)
            except (QuotaExceededError, StoreDamagedError) as error:  # of this one alone
                await self._tell(actor, error.message)
                return
        self._told[job_id] = StoredCheckpoint(copy, self._clock.now(), artefact)
        await actor.send(CheckpointStored(self._told[job_id]))

    async def _bring_back(self, actor: JobActor) -> None:
        """Let the broker hold again what it had lost."""
        stored = actor.job.stored
        if stored is None:
            return
        run_id, artefact = stored.copy.run_id, stored.artefact
        try:
            with self._checkpoints.taking_back(run_id, artefact.size_bytes) as place:
                await self._own.get(artefact, place)
        except (NotFoundError, StoreDamagedError) as error:
            logger.warning("job %s: %s", actor.job.id, error.message)
            await actor.send(CheckpointGone(run_id, error.message))
        except (QuotaExceededError, CannotWriteError) as error:  # it waits for room, others may be smaller
            await self._tell_waiting(actor, error.message)
        else:
            if actor.job.state.is_final:  # meanwhile, and what it had at the broker was removed before
                self._checkpoints.drop(actor.job.id)
            await actor.send(CheckpointHeldAgain(run_id))

    async def tell(self, problem: str) -> None:
        """See :class:`~.keeper.Kind`."""
        for actor in self._that_wait_for_their_copy():
            await self._tell_waiting(actor, problem)
        for actor in self._that_are_not_stored():
            await self._tell(actor, problem)

    async def _tell(self, actor: JobActor, problem: str) -> None:
        if actor.job.store_problem != problem:
            await actor.send(CheckpointNotStored(problem))

    async def _tell_waiting(self, actor: JobActor, problem: str) -> None:
        await self._tell(actor, problem)
        words = f"waits for its checkpoint: {problem}"
        if actor.job.state is JobState.PENDING and actor.job.reason != words:
            await actor.send(Deferred(words))


def _run_of(source: BinaryIO) -> str:
    """Whose checkpoint a file holds."""
    try:
        return read_manifest(source).run_id
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreDamagedError("the broker's own copy of the checkpoint is damaged") from error
