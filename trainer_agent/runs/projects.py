"""Projects of jobs: fetched from the broker by content, and kept within a bound, since the next run needs them too."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tiercel.core.blobs import BlobError, BlobFolder, BlobReceiver
from tiercel.core.errors import InvalidSpecError
from tiercel.core.projects import MAX_ENTRIES, MAX_FOLDER_BYTES, OBJECTS_AT_A_TIME, Entry, Kind, decode_folder, walk
from tiercel.core.tasks import run_in_thread
from tiercel.trainer_agent.connection.calls import BrokerCalls, Stub
from tiercel.trainer_agent.errors import RunFailedError, TransferError
from tiercel.v1 import nodes_pb2

DEFAULT_CACHE_BYTES: Final = 4 * 1024**3
# Of one call, so that a slow connection gets through in several.
_CALL_BYTES: Final = 32 * 1024**2
_MAX_BYTES: Final = 2**50


@dataclass(frozen=True, slots=True)
class FetchedProject:
    """A project that is on this node as a whole."""

    entries: Sequence[tuple[str, Entry]]  # what is in it, by path; folders before what lies in them
    objects: BlobFolder  # its objects

    def path(self, entry: Entry) -> Path:
        """Where the content of a file of it lies; to be copied, never to be changed."""
        return self.objects.path(entry.content)


class ProjectFetcher:
    """Fetches projects of jobs.

    Args:
        calls: To the broker.
        folder: Where objects are kept; this agent's alone.
        cache_bytes: What they may have together while no run needs more.
        patience_seconds: How long each part is tried while the broker does not answer.
    """

    def __init__(
        self,
        calls: BrokerCalls,
        folder: Path,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        patience_seconds: float = 120.0,
    ) -> None:
        self._calls = calls
        self._objects = BlobFolder(folder)
        self._objects.remove_unfinished()
        self._cache_bytes = cache_bytes
        self._patience = patience_seconds
        self._needed: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def fetched(self, run_id: str, root: str) -> AsyncIterator[FetchedProject]:
        """A project, which stays on this node while the block lasts.

        Raises:
            TransferError: It did not come, or is something else.
            RunFailedError: The disk does not take it.
        """
        with contextlib.ExitStack() as needs:
            try:
                entries = await self._entries(run_id, root, needs)
                files = {entry.content: entry.size_bytes for _, entry in entries if entry.kind in _WITH_CONTENT}
                needs.enter_context(self._needing(files))
                await self._fetch_missing(run_id, files)
                await asyncio.to_thread(self._objects.note_used, files)
            except (BlobError, InvalidSpecError, FileNotFoundError) as error:
                raise TransferError(f"its project arrived damaged: {error}") from error
            except OSError as error:
                raise RunFailedError(f"The project of the job cannot be written: {error}.") from error
            yield FetchedProject(entries, self._objects)

    async def _entries(self, run_id: str, root: str, needs: contextlib.ExitStack) -> Sequence[tuple[str, Entry]]:
        """All that is in a project, a level of folders at a time."""
        level = {root: 0}
        known = {root}
        while level:
            needs.enter_context(self._needing(level))
            await self._fetch_missing(run_id, level)
            below = await asyncio.to_thread(self._folders_below, level)
            level = {name: size for name, size in below.items() if name not in known}
            known |= level.keys()
            if len(known) > MAX_ENTRIES:
                raise BlobError(f"it has more than {MAX_ENTRIES} folders")
        return await asyncio.to_thread(lambda: list(walk(root, self._read_folder, limit_bytes=_MAX_BYTES)))

    def _folders_below(self, names: Collection[str]) -> dict[str, int]:
        return {
            entry.content: entry.size_bytes
            for name in names
            for entry in decode_folder(self._read_folder(name))
            if entry.kind is Kind.FOLDER
        }

    def _read_folder(self, name: str) -> bytes:
        return self._objects.read(name, MAX_FOLDER_BYTES + 1)

    @contextlib.contextmanager
    def _needing(self, names: Collection[str]) -> Iterator[None]:
        self._needed.update(names)
        try:
            yield
        finally:
            self._needed.subtract(names)
            self._needed = +self._needed

    async def _fetch_missing(self, run_id: str, sizes: dict[str, int]) -> None:
        missing = await asyncio.to_thread(self._objects.missing, sizes)
        if not missing:
            return
        room = max(0, self._cache_bytes - sum(sizes[name] for name in missing))
        await asyncio.to_thread(self._objects.remove_oldest, room, frozenset(self._needed))
        for part in _parts(missing, sizes):
            await self._calls.retried(functools.partial(self._fetch, run_id, part), self._patience, "its project")

    async def _fetch(self, run_id: str, names: Sequence[str], stub: Stub) -> None:
        request = nodes_pb2.FetchObjectsRequest(
            node_id=self._calls.node_id, run_id=run_id, instance=self._calls.instance, sha256=names
        )
        with await asyncio.to_thread(self._objects.receive) as receiver:
            async for response in stub.FetchObjects(request, metadata=self._calls.metadata()):
                await run_in_thread(_write, receiver, response)
            await run_in_thread(receiver.finish)


_WITH_CONTENT: Final = (Kind.FILE, Kind.PROGRAM)


def _write(receiver: BlobReceiver, response: nodes_pb2.FetchObjectsResponse) -> None:
    for piece in response.pieces:
        receiver.write(piece.sha256, piece.size_bytes, piece.data)


def _parts(names: Sequence[str], sizes: dict[str, int]) -> Iterator[Sequence[str]]:
    """What is fetched with one call after the other."""
    part: list[str] = []
    size = 0
    for name in names:
        if part and (size + sizes[name] > _CALL_BYTES or len(part) >= OBJECTS_AT_A_TIME):
            yield part
            part, size = [], 0
        part.append(name)
        size += sizes[name]
    yield part
