"""Which versions of delivered models answer on this node: what the broker wants is put in force, and kept.

The model's folder says which version answers (:mod:`.record`), so that it is the same one after a restart of the
inference server. Models that the agent has not put there are left alone, and so are those that the broker does not
name.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.models.record import ModelRecord
from tiercel.trainer_agent.models.repository import ModelRepository
from tiercel.trainer_agent.models.variants import Place
from tiercel.trainer_agent.supervision import Supervisor

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 10.0
_FROM_MEMORY: Final = "It answers from memory until the inference server is started again."


class Loader(Protocol):
    """Makes versions of models answer."""

    async def load(self, model: str, version: int | None = None) -> str:
        """Have a version loaded: the one that is chosen in its folder, unless a number is given.

        Of an endpoint with variants: have read which they are.

        Returns:
            SHA-256 of the ONNX file that answers now, hexadecimal; empty of an endpoint with variants.

        Raises:
            DeliveryFailedError: It was refused, or nobody answers.
        """

    async def unload(self, model: str) -> None:
        """Have a model answer no more.

        Raises:
            DeliveryFailedError: It was refused, or nobody answers.
        """


@dataclass(frozen=True, slots=True)
class WantedVersions:
    """What shall be of a model."""

    version: int  # number of the version that shall answer; 0 for none
    kept: frozenset[int]  # versions whose files stay


class ServedModels:
    """Owns what answers of what was delivered.

    Args:
        repository: Where versions are.
        loader: Makes them answer.
        tasks: Owner of the tasks that put in force what is wanted.
        changed: Told when there is another problem, or one less; may not block.
        elsewhere: Waits until requests for an endpoint that leaves this node can be handed on to another one, or will
            not be, by its name.
        in_place: Told which versions of a place have files there, each with the SHA-256 of its ONNX file; may not
            block.
    """

    def __init__(
        self,
        repository: ModelRepository,
        loader: Loader,
        tasks: Supervisor,
        changed: Callable[[], None] = lambda: None,
        elsewhere: Callable[[str], Awaitable[None]] | None = None,
        in_place: Callable[[Place, Mapping[int, str]], None] = lambda place, versions: None,
    ) -> None:
        self._repository = repository
        self._loader = loader
        self._tasks = tasks
        self._changed = changed
        self._elsewhere = elsewhere
        self._in_place = in_place
        self._locks: dict[str, asyncio.Lock] = {}  # by endpoint: a loaded variant and the list of variants go together
        self._wanted: Mapping[Place, WantedVersions] = {}
        self._arriving: Collection[Place] = frozenset()
        self._busy: set[Place] = set()
        self._in_force: dict[Place, WantedVersions] = {}
        self._answering: dict[Place, int] = {}  # as the inference server confirmed in this life of the agent
        self._problems: dict[Place, str] = {}

    @property
    def problems(self) -> Mapping[Place, str]:
        """Why what is wanted is not in force, in plain words, where that is so."""
        return self._problems

    @property
    def answering(self) -> Mapping[Place, int]:
        """Versions that were put in force in this life of the agent, whatever became of them in the server's hands."""
        return self._answering

    def want(self, wanted: Mapping[Place, WantedVersions], arriving: Collection[Place]) -> None:
        """Begin to put in force what is wanted.

        Args:
            wanted: By place; others stay as they are.
            arriving: Places of which a version is being delivered: what is wanted of them is old.
        """
        self._wanted, self._arriving = wanted, arriving
        for place in self._problems.keys() - wanted.keys():
            self._set_problem(place, "")
        for place, versions in wanted.items():
            if place not in arriving and place not in self._busy and self._in_force.get(place) != versions:
                self._begin(place)

    async def watch(self) -> None:
        """Look now and then whether the files of what shall answer are there, until cancelled.

        What is loaded answers without them, and nobody would know before the inference server is started again.
        """
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self.look()
            except OSError as error:
                _log.warning("the models' folder cannot be looked at: %s", error)

    async def look(self) -> None:
        """Look once whether the files of what shall answer are there."""
        for place in [place for place, wanted in self._wanted.items() if wanted.version]:
            async with self._lock_of(place):
                there = await asyncio.to_thread(self._repository.there_of, place.model)
                wanted = self._wanted.get(place)
                if wanted is None or not wanted.version or place in self._arriving or place in self._busy:
                    continue
                gone = _gone(wanted.version)
                if wanted.version not in there:
                    self._in_force.pop(place, None)
                    loaded = self._answering.get(place) == wanted.version
                    self._set_problem(place, f"{gone} {_FROM_MEMORY}" if loaded else gone)
                elif self._problems.get(place, "").startswith(gone):  # they are back
                    self._begin(place)
                self._in_place(place, {version: sha for version, sha in there.items() if version in wanted.kept})

    async def deliver(self, delivery_id: str, place: Place, version: int, sha256: str, *, answers: bool) -> None:
        """Put the staged files of a delivery in place and, if it is to answer, let it; returns when it does.

        Raises:
            DeliveryFailedError: It cannot; what answered before does still.
            OSError: The files could not be handled.
        """
        async with self._lock_of(place):
            self._in_force.pop(place, None)
            await asyncio.to_thread(self._repository.publish, delivery_id, place.model, version, sha256)
            if answers:
                await self._let_answer(place, version)

    async def withdraw(self, delivery_id: str, place: Place, version: int) -> None:
        """Remove the files of a delivery that failed."""
        async with self._lock_of(place):
            await asyncio.to_thread(self._repository.withdraw, delivery_id, place.model, version)

    def _begin(self, place: Place) -> None:
        self._busy.add(place)
        self._tasks.start(f"model {place.model}", self._put_in_force(place))

    def _lock_of(self, place: Place) -> asyncio.Lock:
        return self._locks.setdefault(place.endpoint, asyncio.Lock())

    async def _put_in_force(self, place: Place) -> None:
        try:
            async with self._lock_of(place):
                while (wanted := self._wanted.get(place)) is not None and place not in self._arriving:
                    if self._in_force.get(place) == wanted:
                        return
                    await self._change(place, wanted)
                    self._in_force[place] = wanted
                    self._set_problem(place, "")
        except (DeliveryFailedError, OSError) as error:  # tried again when something is wanted the next time
            message = error.message if isinstance(error, DeliveryFailedError) else f"Its files are in the way: {error}."
            self._set_problem(place, message)
        finally:
            self._busy.discard(place)

    async def _change(self, place: Place, wanted: WantedVersions) -> None:
        record = await asyncio.to_thread(self._repository.record, place.model)
        there = await asyncio.to_thread(self._repository.there_of, place.model)
        if record is None:
            if wanted.version:
                raise DeliveryFailedError(_gone(wanted.version))
            return
        if not wanted.version:
            # Of an endpoint that was deleted nothing is kept: nobody is to answer.
            if record.live and wanted.kept and self._elsewhere is not None:
                await self._elsewhere(place.endpoint)
            await self._let_none_answer(place, record)
        elif self._answering.get(place) != wanted.version:
            if wanted.version not in there:
                raise DeliveryFailedError(_gone(wanted.version))
            # By its number only where it is another one than before: the server may have had its reasons to go back.
            await self._let_answer(place, wanted.version, by_number=record.live != wanted.version)
            _log.info("version %d of %s answers, as the broker wants it", wanted.version, place.model)
        await asyncio.to_thread(self._repository.keep_only, place.model, wanted.kept)
        if not wanted.kept:
            await self._forget(place)
        self._in_place(place, {version: sha for version, sha in there.items() if version in wanted.kept})

    async def _forget(self, place: Place) -> None:
        """Unload what has no files any more: the inference server forgets what was asked and said of it."""
        await self._loader.unload(place.model)
        if place.variant and not await asyncio.to_thread(self._repository.has_variants, place.endpoint):
            await self._loader.unload(place.endpoint)

    async def _let_answer(self, place: Place, version: int, *, by_number: bool = False) -> None:
        before = await asyncio.to_thread(self._repository.record, place.model) or ModelRecord()
        try:
            await asyncio.to_thread(self._repository.let_answer, place.model, version)
            if place.variant:  # first the endpoint, which then sees to it that the variant fits the others
                await asyncio.to_thread(self._repository.list_variants, place.endpoint)
                await self._loader.load(place.endpoint)
            _check_same(
                place, before.versions[version], await self._loader.load(place.model, version if by_number else None)
            )
        except (DeliveryFailedError, OSError):
            await asyncio.to_thread(self._repository.let_answer, place.model, before.live)
            if place.variant:
                # Somebody else's file, or no room for ours; the server leaves out what is gone.
                with contextlib.suppress(DeliveryFailedError, OSError):
                    await asyncio.to_thread(self._repository.list_variants, place.endpoint)
            raise
        self._answering[place] = version

    async def _let_none_answer(self, place: Place, record: ModelRecord) -> None:
        """It answers on another node by now."""
        self._answering.pop(place, None)
        leaves = place.variant and not any(
            wanted.version for each, wanted in self._wanted.items() if each.endpoint == place.endpoint
        )
        if leaves:  # while its variants are there: they answer those who wait, and who comes is handed on
            await self._loader.unload(place.endpoint)
        if record.live:
            await asyncio.to_thread(self._repository.let_answer, place.model, 0)
        if leaves:
            await asyncio.to_thread(self._repository.list_variants, place.endpoint)
        elif place.variant:
            await asyncio.to_thread(self._repository.list_variants, place.endpoint)
            try:
                await self._loader.load(place.endpoint)
            except DeliveryFailedError:  # none of its variants is left here
                await self._loader.unload(place.endpoint)
        await self._loader.unload(place.model)
        if record.live:
            _log.info("no version of %s answers here any more, as the broker wants it", place.model)

    def _set_problem(self, place: Place, problem: str) -> None:
        if self._problems.get(place, "") == problem:
            return
        if problem:
            _log.warning("what is wanted of %s is not in force: %s", place.model, problem)
            self._problems[place] = problem
        else:
            del self._problems[place]
        self._changed()


def _check_same(place: Place, delivered: str, answering: str) -> None:
    if answering != delivered:
        raise DeliveryFailedError(
            f"The inference server answers for {place.model!r} with a file that somebody else has loaded under this "
            f"name; unload it there (POST /v2/repository/models/{place.model}/unload) and try again."
        )


def _gone(version: int) -> str:
    return f"The files of version {version} are not on this node any more."
