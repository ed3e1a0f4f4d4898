"""Keeps copies of checkpoints in the artefact store as well, and brings back those that the broker lost.

It compares, again and again: what the jobs that live have at the broker with what the store has. So it forgets nothing
while the store is away, and what it has done twice is done once.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from tiercel.broker.lifecycle.job_events import (
    CheckpointGone,
    CheckpointHeldAgain,
    CheckpointNotStored,
    CheckpointStored,
    Deferred,
)
from tiercel.broker.store.checkpoints import DEFAULT_CHECKPOINTS_BYTES, read_manifest
from tiercel.core.backoff import Attempts, Backoff
from tiercel.core.checkpoints import Artefact, StoredCheckpoint
from tiercel.core.errors import (
    CannotWriteError,
    NotFoundError,
    OverloadedError,
    QuotaExceededError,
    StoreDamagedError,
    TiercelError,
    UnavailableError,
)
from tiercel.core.jobs import JobState
from tiercel.core.tasks import run_in_thread

if TYPE_CHECKING:
    from pathlib import Path

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.job import JobActor
    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.broker.store.artefacts.contract import Artefacts
    from tiercel.broker.store.artefacts.ownership import Ownership
    from tiercel.broker.store.checkpoints import CheckpointStore

logger = logging.getLogger(__name__)

_READ_BYTES = 1024**2


@dataclass(frozen=True, slots=True)
class Patience:
    """How the store is dealt with.

    Attributes:
        look_seconds: Between two looks at the jobs.
        answer_seconds: How long a call to the store may take, but for what it carries.
        bytes_per_second: How fast it must carry that at least.
        list_seconds: How often it is asked for all that it has.
        backoff: Pauses before the next look after one that failed.
    """

    look_seconds: float = 1.0
    answer_seconds: float = 15.0
    bytes_per_second: float = 1024.0**2
    list_seconds: float = 3600.0
    backoff: Backoff = field(default_factory=lambda: Backoff(2.0, 60.0))

    def seconds_for(self, size_bytes: int) -> float:
        """The deadline of a call that carries so much."""
        return self.answer_seconds + size_bytes / self.bytes_per_second


class CheckpointKeeper:
    """Sees to it that the artefact store has what the jobs need, and nothing else.

    Args:
        artefacts: The store.
        ownership: Says whether it is ours.
        checkpoints: Those that the broker holds.
        registry: The jobs.
        clock: The time.
        limit_bytes: What all that is stored may have together.
        patience: How the store is dealt with.
    """

    def __init__(
        self,
        artefacts: Artefacts,
        ownership: Ownership,
        checkpoints: CheckpointStore,
        registry: ActorRegistry,
        clock: Clock,
        limit_bytes: int = DEFAULT_CHECKPOINTS_BYTES,
        patience: Patience | None = None,
    ) -> None:
        self._artefacts = artefacts
        self._ownership = ownership
        self._checkpoints = checkpoints
        self._registry = registry
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._patience = patience or Patience()
        # What the store has, as far as we know, and when it was asked.
        self._held: dict[str, int] = {}
        self._listed_at = -math.inf
        # What jobs were told that the store has, until they have noted it.
        self._told: dict[str, StoredCheckpoint] = {}
        # When a job's copy was last tried: one on which the store fails again and again comes after the others.
        self._tried: dict[str, float] = {}
        # Why the last look failed; said once in the log.
        self._problem = ""

    async def run(self) -> None:
        """Compare and mend until cancelled."""
        attempts = Attempts(self._patience.backoff)
        while True:
            pause = self._patience.look_seconds
            try:
                await self.look()
                attempts.reset()
                self._problem = ""
            except TiercelError as error:
                pause = await self._say(error.message, attempts)
            except OSError as error:
                pause = await self._say(f"the broker cannot read its copies: {error.strerror or error}", attempts)
            await self._clock.sleep(pause)

    async def _say(self, problem: str, attempts: Attempts) -> float:
        """Say why the store does not do what it should; returns how long to wait now."""
        if problem != self._problem:
            logger.warning("%s", problem)
            self._problem = problem
        with contextlib.suppress(OverloadedError):  # who did not hear it hears it next time
            await self._tell_all(problem)
        return attempts.next_seconds()

    async def look(self) -> None:
        """Compare once, and mend what differs.

        Raises:
            TiercelError: The store is away, full or another broker's; the rest is mended with the next look.
        """
        self._forget_what_is_over()
        if self._clock.alive() - self._listed_at >= self._patience.list_seconds:
            await self._ownership.ensure(self._patience.answer_seconds)
            await self._artefacts.remove_unfinished(self._patience.answer_seconds)
            self._held = await self._artefacts.held(self._patience.answer_seconds)
            self._listed_at = self._clock.alive()
        held = self._held
        work = [*self._that_wait_for_their_copy(), *self._that_are_not_stored(held)]
        for actor in sorted(work, key=lambda actor: self._tried.get(actor.job.id, 0.0)):
            self._tried[actor.job.id] = self._clock.alive()
            if actor.job.awaits_copy:
                await self._bring_back(actor)
            else:
                await self._store(actor, held)
        # Last: where nothing may be removed, what is newer is stored all the same.
        await self._remove_unneeded(held)

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

    def _that_are_not_stored(self, held: dict[str, int]) -> list[JobActor]:
        """Those whose copy at the broker is newer than what is stored."""
        found = []
        for actor in self._living():
            stored = self._told.get(actor.job.id, actor.job.stored)
            is_stored = stored is not None and stored.copy == actor.job.copy and stored.artefact.sha256 in held
            if not actor.job.awaits_copy and not is_stored:
                found.append(actor)
        return found

    async def _remove_unneeded(self, held: dict[str, int]) -> None:
        """Remove what no job goes on from any more."""
        jobs = [actor.job for actor in self._living()]
        needed = {stored.artefact.sha256 for stored in self._told.values()}
        needed.update(job.stored.artefact.sha256 for job in jobs if job.stored is not None)
        unneeded = held.keys() - needed
        if unneeded:
            await self._ensure_ours()
        for sha256 in unneeded:
            await self._artefacts.delete(sha256, self._patience.answer_seconds)
            del held[sha256]

    async def _store(self, actor: JobActor, held: dict[str, int]) -> None:
        """Put a job's copy into the store, unless what it holds belongs to another run by now."""
        job_id, copy = actor.job.id, actor.job.copy
        source = self._checkpoints.open_whole(job_id)
        if source is None or copy is None:
            return
        with source:
            try:
                if _run_of(source) != copy.run_id:
                    return
                # Before all of it is read, which takes a while.
                self._check_room(os.fstat(source.fileno()).st_size, held)
                await self._ensure_ours()
                artefact = await run_in_thread(_artefact_of, source)
                if artefact.sha256 not in held:
                    await self._put(artefact, source)
                    held[artefact.sha256] = artefact.size_bytes
            except (QuotaExceededError, StoreDamagedError) as error:  # of this one alone
                await self._tell(actor, error.message)
                return
        self._told[job_id] = StoredCheckpoint(copy, self._clock.now(), artefact)
        await actor.send(CheckpointStored(self._told[job_id]))

    def _check_room(self, wanted_bytes: int, held: dict[str, int]) -> None:
        if sum(held.values()) + wanted_bytes > self._limit_bytes:
            raise QuotaExceededError(
                f"the artefact store may have {self._limit_bytes} bytes of checkpoints together, and this one does not "
                "fit; wait until other jobs are over, or give them more (TIERCEL_ARTEFACTS_BYTES)",
                field="artefacts",
            )

    async def _put(self, artefact: Artefact, source: BinaryIO) -> None:
        await self._artefacts.put(artefact, source, self._patience.seconds_for(artefact.size_bytes))
        if not await self._artefacts.has(artefact, self._patience.answer_seconds):
            raise UnavailableError(
                f"the artefact store {self._artefacts.where} has not what it took; it is tried again"
            )

    async def _ensure_ours(self) -> None:
        if await self._ownership.ensure(self._patience.answer_seconds):
            self._listed_at = -math.inf  # somebody has emptied it: what is there is asked for again

    async def _bring_back(self, actor: JobActor) -> None:
        """Let the broker hold again what it had lost."""
        stored = actor.job.stored
        if stored is None:
            return
        run_id, artefact = stored.copy.run_id, stored.artefact
        try:
            with self._checkpoints.taking_back(run_id, artefact.size_bytes) as place:
                await self._get(artefact, place)
        except (NotFoundError, StoreDamagedError) as error:
            logger.warning("job %s: %s", actor.job.id, error.message)
            await actor.send(CheckpointGone(run_id, error.message))
        except (QuotaExceededError, CannotWriteError) as error:  # it waits for room, others may be smaller
            await self._tell_waiting(actor, error.message)
        else:
            if actor.job.state.is_final:  # meanwhile, and what it had at the broker was removed before
                self._checkpoints.drop(actor.job.id)
            await actor.send(CheckpointHeldAgain(run_id))

    async def _get(self, artefact: Artefact, place: Path) -> None:
        seconds = self._patience.seconds_for(artefact.size_bytes)
        try:
            await self._artefacts.get(artefact, place, seconds)
        except StoreDamagedError:  # perhaps on its way: what it is given up for must be certain
            await self._artefacts.get(artefact, place, seconds)

    async def _tell_all(self, problem: str) -> None:
        """Say to those that it concerns why the store does not do what it should."""
        for actor in self._that_wait_for_their_copy():
            await self._tell_waiting(actor, problem)
        for actor in self._that_are_not_stored(self._held):
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


def _artefact_of(source: BinaryIO) -> Artefact:
    """What a file is as an artefact; blocks."""
    source.seek(0)
    digest, size = hashlib.sha256(), 0
    while piece := source.read(_READ_BYTES):
        digest.update(piece)
        size += len(piece)
    return Artefact(digest.hexdigest(), size)
