"""Copies of versions: fetched from the broker where another node has delivered them, and sent there for other nodes.

They come over the broker, as nodes need not reach each other. What is fetched is checked by its hashes and put in place
like what a delivery has staged; whether and when it answers is the broker's to say (:mod:`..models.served`).
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tiercel.core.backoff import Attempts, Backoff
from tiercel.core.complaints import Complaint
from tiercel.core.deploying import most_version_bytes
from tiercel.trainer_agent.connection.pace import Pace
from tiercel.trainer_agent.connection.parcels import Parcels, TransferLimits
from tiercel.trainer_agent.disk.parts import Parts
from tiercel.trainer_agent.errors import DeliveryFailedError, TransferError
from tiercel.trainer_agent.models.repository import ModelRepository
from tiercel.trainer_agent.models.served import ServedModels
from tiercel.trainer_agent.models.variants import Place, place_of
from tiercel.trainer_agent.supervision import Supervisor
from tiercel.v1 import nodes_pb2

_log = logging.getLogger(__name__)

_PATIENCE_SECONDS: Final = 600.0
_SLOWEST_BYTES_PER_SECOND: Final = 4 * 1024**2
_PAUSES: Final = Backoff(1.0, 30.0)


@dataclass(frozen=True, slots=True)
class PlacedFiles:
    """The files of a version.

    Attributes:
        place: What it is a version of.
        version: Its number.
        sha256: Of its ONNX file, hexadecimal.
        delivery_id: The delivery that has staged them, while they are not in their place; or empty.
    """

    place: Place
    version: int
    sha256: str
    delivery_id: str = ""

    @property
    def part(self) -> str:
        """Names what has come of them so far; what a delivery waits for is apart from what a copy is made of."""
        return f".{self.delivery_id}" if self.delivery_id else f"{self.place.model}-{self.version}"


def copy_limits(model_bytes: int) -> TransferLimits:
    """What the transfer of a version may take, where a model has so many bytes at most with its weights beside it."""
    patience_seconds = _PATIENCE_SECONDS + model_bytes / _SLOWEST_BYTES_PER_SECOND
    return TransferLimits(most_version_bytes(model_bytes), patience_seconds)


class VersionCopies:
    """Owns what is on its way between this node's model repository and the broker.

    Args:
        parcels: Transfers it.
        repository: Where versions are.
        tasks: Owner of the tasks that transfer.
        changed: Told when there is another copy, or a problem with one; may not block.
        reserve_bytes: What the disk has to have left.
        sending: How fast the broker is sent what nobody waits for; None for as fast as it goes.
        fetching: The same of what comes from it.

    Attributes:
        parts: What has come of copies, and of files that somebody deployed.
    """

    def __init__(
        self,
        parcels: Parcels,
        repository: ModelRepository,
        tasks: Supervisor,
        changed: Callable[[], None],
        reserve_bytes: int = 0,
        sending: Pace | None = None,
        fetching: Pace | None = None,
    ) -> None:
        self._parcels = parcels
        self._repository = repository
        self._tasks = tasks
        self._changed = changed
        self._reserve_bytes = reserve_bytes
        self._sending = sending
        self._fetching = fetching
        self._paced: frozenset[PlacedFiles] = frozenset()
        self.parts = Parts(repository.staging, repository.model_bytes)
        self._under_way: dict[PlacedFiles, asyncio.Task[None]] = {}
        self._sent: frozenset[PlacedFiles] = frozenset()
        self._there: dict[Place, dict[int, str]] = {}
        self._wanted: frozenset[PlacedFiles] = frozenset()
        self._served: ServedModels | None = None
        self._problems: dict[PlacedFiles, str] = {}

    async def open(self) -> None:
        """Look at what an earlier life of the agent has put in place."""
        there = await asyncio.to_thread(self._repository.there)
        self._there = {place_of(model): versions for model, versions in there.items()}

    def begin_anew(self) -> None:
        """The broker is another one, perhaps: what was sent to the last one may have to be sent again."""
        self._sent = frozenset()

    def statuses(self) -> list[nodes_pb2.VersionCopy]:
        """What the broker is told: what is in place, and what cannot be."""
        return [
            *(
                nodes_pb2.VersionCopy(endpoint=place.endpoint, version=version, sha256=sha256)
                for place, versions in self._there.items()
                for version, sha256 in versions.items()
            ),
            *(
                nodes_pb2.VersionCopy(endpoint=files.place.endpoint, version=files.version, reason=reason)
                for files, reason in self._problems.items()
            ),
        ]

    def note_in_place(self, place: Place, versions: Mapping[int, str]) -> None:
        """What has files in a place, by number: what was delivered here, and copies; what else there was is removed."""
        if self._there.get(place, {}) != versions:
            self._there[place] = dict(versions)
            self._changed()
            self._fetch_missing()

    def want(
        self,
        copies: Collection[PlacedFiles],
        sends: Collection[PlacedFiles],
        served: ServedModels,
        paced: Collection[PlacedFiles] = (),
    ) -> None:
        """Begin to fetch and to send what is wanted, and stop what is not.

        Args:
            copies: What shall be here.
            sends: What the broker needs.
            served: Puts copies in place.
            paced: Those of the copies that nobody waits for.
        """
        self._paced = frozenset(paced)
        for files in [each for each in self._under_way if each not in {*copies, *sends}]:
            self._under_way.pop(files).cancel()
        for files in [each for each in self._problems if each not in copies]:
            del self._problems[files]
        self._sent &= frozenset(sends)
        self._wanted, self._served = frozenset(copies), served
        self._fetch_missing()
        for files in sends:
            if files not in self._under_way and files not in self._sent:
                self._start(files, self._send(files))

    async def fetch(self, files: PlacedFiles, staged_id: str) -> None:
        """Fetch the files of a version from the broker to where a delivery stages them.

        Raises:
            TransferError: They did not come.
            DeliveryFailedError: They are not what they should be.
            OSError: The disk does not take them.
        """
        async with self.parts.fetching(files.part) as place:
            await self._fetch_to(place, files)
            await asyncio.to_thread(place.rename, self._repository.staged(staged_id))

    async def _fetch_to(self, place: Path, files: PlacedFiles) -> None:
        request = nodes_pb2.FetchCheckpointRequest(endpoint=files.place.endpoint, version=files.version)
        await self._parcels.fetch(request, place, self._check_room, lambda: self._pace_of(files))
        await asyncio.to_thread(self._repository.check_copy, place, files.sha256)

    def _fetch_missing(self) -> None:
        if self._served is None:
            return
        for files in self._wanted:
            if files not in self._under_way and self._there.get(files.place, {}).get(files.version) != files.sha256:
                self._start(files, self._fetch(files, self._served))

    def _start(self, files: PlacedFiles, work: Coroutine[Any, Any, None]) -> None:
        self._under_way[files] = self._tasks.start(f"copy {files.place.model} {files.version}", work)

    async def _fetch(self, files: PlacedFiles, served: ServedModels) -> None:
        attempts = Attempts(_PAUSES)
        complaint = Complaint(_log, f"version {files.version} of {files.place.model} cannot be had here: %s")
        try:
            while problem := await self._try_fetch(files, served):
                if not self._is_mine(files):
                    return
                complaint.note(problem)
                self._problems[files] = problem
                self._changed()
                await asyncio.sleep(attempts.next_seconds())
        finally:
            self._end(files)
        self._problems.pop(files, None)
        self._there.setdefault(files.place, {})[files.version] = files.sha256
        self._changed()
        _log.info("version %d of %s is here, a copy", files.version, files.place.model)

    async def _try_fetch(self, files: PlacedFiles, served: ServedModels) -> str:
        """Fetch a version and put it in place; why it is not there, in plain words."""
        try:
            if await asyncio.to_thread(self._repository.has, files.place.model, files.version, files.sha256):
                return ""
            async with self.parts.fetching(files.part) as place:
                await self._fetch_to(place, files)
                await served.deliver(place.name, files.place, files.version, files.sha256, answers=False)
        except (TransferError, DeliveryFailedError) as error:
            return error.message
        except OSError as error:
            return f"the disk does not take it ({error})"
        return ""

    async def _send(self, files: PlacedFiles) -> None:
        attempts = Attempts(_PAUSES)
        try:
            while problem := await self._try_send(files):
                if not self._is_mine(files):
                    return
                _log.warning("version %d of %s cannot be sent: %s", files.version, files.place.model, problem)
                await asyncio.sleep(attempts.next_seconds())
            self._sent |= {files}
        finally:
            self._end(files)

    async def _try_send(self, files: PlacedFiles) -> str:
        try:
            found = await asyncio.to_thread(
                self._repository.files, files.place.model, files.version, files.sha256, files.delivery_id
            )
            if not found:
                return "its files are not here"
            header = nodes_pb2.CheckpointHeader(endpoint=files.place.endpoint, version=files.version)
            # A delivery waits for its copies.
            await self._parcels.send(header, found, None if files.delivery_id else self._sending)
        except TransferError as error:
            return error.message
        except OSError as error:  # put in place or removed meanwhile
            return f"its files cannot be read ({error})"
        return ""

    def _pace_of(self, files: PlacedFiles) -> Pace | None:
        return self._fetching if files in self._paced else None

    def _check_room(self, size_bytes: int) -> None:
        left = shutil.disk_usage(self._repository.path).free - size_bytes
        if left < self._reserve_bytes:
            raise TransferError(
                f"the node's disk has no room for its {size_bytes} bytes, as {self._reserve_bytes} have to be left; "
                "make room"
            )

    def _is_mine(self, files: PlacedFiles) -> bool:
        return self._under_way.get(files) is asyncio.current_task()

    def _end(self, files: PlacedFiles) -> None:
        if self._is_mine(files):
            del self._under_way[files]
