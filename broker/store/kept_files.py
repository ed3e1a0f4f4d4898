"""The files that jobs left behind: which there are, in the database, and their contents beside it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import Row, delete, func, select

from tiercel.broker.store import tables
from tiercel.broker.store.disk_room import DiskRoom
from tiercel.broker.store.errors import taking_in
from tiercel.broker.store.sql import put
from tiercel.core.blobs import BlobError, BlobFolder
from tiercel.core.errors import NotFoundError, UnavailableError
from tiercel.core.files import Admission, FileLimits, KeptFile, admit

if TYPE_CHECKING:
    from pathlib import Path

    from tiercel.broker.store.sql import Store
    from tiercel.core.blobs import BlobReceiver

_COLUMNS = tables.files.c
# Contents that are asked for together.
_AT_A_TIME = 500


class KeptFiles:
    """Keeps files of jobs. A content is there before anything refers to it, and goes after the last that did.

    Args:
        store: The database.
        folder: Where the contents are; made when missing.
        limits: What is kept of a job and of a tenant.
        room: The disk's, where others share it.
    """

    def __init__(self, store: Store, folder: Path, limits: FileLimits, room: DiskRoom | None = None) -> None:
        self._store = store
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._contents = BlobFolder(folder)
        self._room = room or DiskRoom(folder)
        self.limits = limits
        # Between what is known of contents and what is done to them nothing may change.
        self._changing = asyncio.Lock()
        # What is coming in: contents, each as often as it does, and bytes by tenant.
        self._coming = Counter[str]()
        self._coming_bytes = Counter[str]()

    async def start(self) -> None:
        """Remove contents that nothing refers to: the broker ended while they came or went."""
        async with self._store.reading() as connection:
            known = (await connection.scalars(select(_COLUMNS.sha256).distinct())).all()
        await asyncio.to_thread(self._contents.remove_unfinished)
        await asyncio.to_thread(self._contents.remove_others, frozenset(known), 0.0)

    async def of_job(self, job_id: str) -> list[KeptFile]:
        """What is kept of a job, by path."""
        query = select(tables.files).where(_COLUMNS.job_id == job_id).order_by(_COLUMNS.path)
        async with self._store.reading() as connection:
            return [_file_of(row) for row in (await connection.execute(query)).all()]

    async def read(self, file: KeptFile, offset: int, piece_bytes: int) -> AsyncIterator[bytes]:
        """The content of a file from a byte on, in pieces.

        Raises:
            NotFoundError: It is not here any more.
        """
        try:
            reader = self._contents.path(file.sha256).open("rb")
        except FileNotFoundError:
            raise NotFoundError(f"path: the content of {file.path!r} is gone", field="path") from None
        with reader:
            reader.seek(offset)
            while piece := await asyncio.to_thread(reader.read, piece_bytes):
                yield piece

    @asynccontextmanager
    async def receiving(self, tenant: str, job_id: str, offered: Sequence[KeptFile]) -> AsyncIterator[Incoming]:
        """Take in files of a job; left without :meth:`Incoming.finish`, nothing of them is kept.

        Raises:
            CannotWriteError: The disk has no room for all of them; nothing is taken in.
        """
        known = {file.path: file for file in await self.of_job(job_id)}
        used = await self._bytes_of(tenant) + self._coming_bytes[tenant]
        admission = admit(offered, known, used, self.limits)
        # Of contents that are here only the tenant's own count: others' are none of its business, and are sent again.
        owned = await self._owned(tenant, {file.sha256 for file in admission.kept})
        wanted = {file.sha256: file.size_bytes for file in admission.kept if file.sha256 not in owned}
        new_bytes = sum(file.size_bytes for file in admission.kept)
        coming = Counter({file.sha256: 1 for file in admission.kept})
        self._coming += coming
        self._coming_bytes[tenant] += new_bytes
        try:
            with self._contents.receive() as receiver:
                incoming = self._room.begin(sum(wanted.values()), lambda: Incoming(receiver, admission, wanted))
                try:
                    yield incoming
                finally:  # whoever holds it still keeps no room by that
                    incoming.expected_bytes = 0
                if incoming.is_whole:
                    await self._save(tenant, job_id, admission.kept)
        finally:
            self._coming -= coming
            self._coming_bytes[tenant] -= new_bytes
            async with self._changing:
                await self._drop_unused(wanted)

    async def _save(self, tenant: str, job_id: str, files: Sequence[KeptFile]) -> None:
        async with self._changing:
            if self._contents.missing(file.sha256 for file in files):
                raise UnavailableError("some contents have gone meanwhile; send the files again")
            before = {file.path: file for file in await self.of_job(job_id)}
            async with self._store.writing() as connection:
                await put(connection, tables.files, [_row_of(tenant, job_id, file) for file in files])
            await self._drop_unused({before[file.path].sha256 for file in files if file.path in before})

    async def remove(self, files: Collection[tuple[str, str]]) -> None:
        """Keep some files no longer, each named by its job and its path."""
        async with self._changing:
            gone: set[str] = set()
            async with self._store.writing() as connection:
                for job_id, path in files:
                    which = (_COLUMNS.job_id == job_id, _COLUMNS.path == path)
                    gone.update((await connection.scalars(select(_COLUMNS.sha256).where(*which))).all())
                    await connection.execute(delete(tables.files).where(*which))
            await self._drop_unused(gone)

    async def by_job(self, tenant: str = "") -> tuple[Counter[str], Counter[str]]:
        """How many files are kept of each job, and what they have together, of one tenant or of all."""
        query = select(_COLUMNS.job_id, func.count(), func.sum(_COLUMNS.size_bytes)).group_by(_COLUMNS.job_id)
        if tenant:
            query = query.where(_COLUMNS.tenant == tenant)
        async with self._store.reading() as connection:
            found = (await connection.execute(query)).all()
        return Counter({job: count for job, count, _ in found}), Counter({job: int(size) for job, _, size in found})

    async def _drop_unused(self, contents: Collection[str]) -> None:
        """Remove those of these contents that nothing refers to, and that are not just coming in again."""
        left = [sha256 for sha256 in contents if not self._coming[sha256]]
        for begin in range(0, len(left), _AT_A_TIME):
            some = left[begin : begin + _AT_A_TIME]
            query = select(_COLUMNS.sha256).where(_COLUMNS.sha256.in_(some)).distinct()
            async with self._store.reading() as connection:
                used = set((await connection.scalars(query)).all())
            for sha256 in some:
                if sha256 not in used and not self._coming[sha256]:
                    self._contents.path(sha256).unlink(missing_ok=True)

    async def _bytes_of(self, tenant: str) -> int:
        query = select(func.coalesce(func.sum(_COLUMNS.size_bytes), 0)).where(_COLUMNS.tenant == tenant)
        async with self._store.reading() as connection:
            return int(await connection.scalar(query) or 0)

    async def _owned(self, tenant: str, contents: Collection[str]) -> set[str]:
        query = select(_COLUMNS.sha256).where(_COLUMNS.tenant == tenant, _COLUMNS.sha256.in_(contents))
        async with self._store.reading() as connection:
            found = set((await connection.scalars(query)).all())
        return found - set(self._contents.missing(found))


class Incoming:
    """Files on their way in; see :meth:`KeptFiles.receiving`.

    Args:
        wanted: The contents that are to come, in this order, each with its size in bytes.

    Attributes:
        admission: What is kept.
        wanted: The contents that are to come, in this order.
        is_whole: Whether all of it is there.
        expected_bytes: What will be written of them still, see :class:`.DiskRoom`.
    """

    def __init__(self, receiver: BlobReceiver, admission: Admission, wanted: Mapping[str, int]) -> None:
        self.admission = admission
        self.wanted = tuple(wanted)
        self.is_whole = False
        self.expected_bytes = sum(wanted.values())
        self._receiver = receiver
        self._left = list(wanted.items())
        self._missing = self._left[0][1] if self._left else 0

    def write(self, data: bytes) -> None:
        """Take in what comes next; blocks while the disk works.

        Raises:
            InvalidSpecError: It is not what was announced.
            CannotWriteError: The disk is full.
        """
        with taking_in("the folder of files", "data"):
            while data or (self._left and not self._missing):
                if not self._left:
                    raise BlobError("there is more of it than was announced")
                part, data = data[: self._missing], data[self._missing :]
                self._receiver.write(*self._left[0], part)
                self._missing -= len(part)
                self.expected_bytes -= len(part)
                if not self._missing:
                    self._left.pop(0)
                    self._missing = self._left[0][1] if self._left else 0

    def finish(self) -> None:
        """Say that this is all; blocks while the disk works.

        Raises:
            InvalidSpecError: Something is missing, or is not what was announced.
            CannotWriteError: The disk is full.
        """
        self.write(b"")  # contents without a byte at the end
        with taking_in("the folder of files", "data"):
            if self._left:
                raise BlobError(f"it ends {self._missing} bytes too early")
            self._receiver.finish()
        self.is_whole = True


def _file_of(row: Row[Any]) -> KeptFile:
    return KeptFile(row.path, row.size_bytes, row.sha256, row.run_id, row.kept_at)


def _row_of(tenant: str, job_id: str, file: KeptFile) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "path": file.path,
        "tenant": tenant,
        "sha256": file.sha256,
        "size_bytes": file.size_bytes,
        "run_id": file.run_id,
        "kept_at": file.kept_at,
    }
