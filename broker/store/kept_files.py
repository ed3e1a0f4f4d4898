"""The files that jobs left behind: which there are, in the database, and their contents beside it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import Row, delete, func, select

from tiercel.broker.store import tables
from tiercel.broker.store.sql import put
from tiercel.core.errors import InvalidSpecError, UnavailableError
from tiercel.core.files import Admission, FileLimits, KeptFile, admit

if TYPE_CHECKING:
    from tiercel.broker.store.contents import ContentStore, ContentWriter
    from tiercel.broker.store.sql import SqlStore

_COLUMNS = tables.files.c


class KeptFiles:
    """Keeps files of jobs. A content is there before anything refers to it, and goes after the last that did.

    Args:
        store: The database.
        contents: Where the contents are.
        limits: What is kept.
    """

    def __init__(self, store: SqlStore, contents: ContentStore, limits: FileLimits) -> None:
        self._store = store
        self._contents = contents
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
        await asyncio.to_thread(self._contents.keep_only, frozenset(known))

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
        with self._contents.open(file.sha256) as reader:
            reader.seek(offset)
            while piece := await asyncio.to_thread(reader.read, piece_bytes):
                yield piece

    @asynccontextmanager
    async def receiving(self, tenant: str, job_id: str, offered: Sequence[KeptFile]) -> AsyncIterator[Incoming]:
        """Take in files of a job; left without :meth:`Incoming.finish`, nothing of them is kept.

        Args:
            tenant: The job's owner.
            job_id: The job.
            offered: What its run left behind.
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
            with Incoming(self._contents, admission, wanted) as incoming:
                yield incoming
                if incoming.is_whole:
                    await self._save(tenant, job_id, admission.kept)
        finally:
            self._coming -= coming
            self._coming_bytes[tenant] -= new_bytes
            async with self._changing:
                await self._drop_unused(wanted)

    async def _save(self, tenant: str, job_id: str, files: Sequence[KeptFile]) -> None:
        async with self._changing:
            if not all(self._contents.has(file.sha256) for file in files):
                raise UnavailableError("some contents have gone meanwhile; send the files again")
            await asyncio.to_thread(self._contents.sync)
            before = {file.path: file for file in await self.of_job(job_id)}
            async with self._store.writing() as connection:
                await put(connection, tables.files, [_row_of(tenant, job_id, file) for file in files])
            await self._drop_unused({before[file.path].sha256 for file in files if file.path in before})

    async def remove(self, files: Collection[tuple[str, str]]) -> None:
        """Keep some files no longer, each named by its job and its path."""
        async with self._changing:
            gone: set[str] = set()
            for job_id, path in files:
                which = (_COLUMNS.job_id == job_id, _COLUMNS.path == path)
                async with self._store.writing() as connection:
                    gone.update((await connection.scalars(select(_COLUMNS.sha256).where(*which))).all())
                    await connection.execute(delete(tables.files).where(*which))
            await self._drop_unused(gone)

    async def _drop_unused(self, contents: Collection[str]) -> None:
        """Remove those of these contents that nothing refers to, and that are not just coming in again."""
        for sha256 in contents:
            query = select(func.count()).where(_COLUMNS.sha256 == sha256)
            async with self._store.reading() as connection:
                uses = await connection.scalar(query)
            if not uses and not self._coming[sha256]:
                self._contents.remove(sha256)

    async def _bytes_of(self, tenant: str) -> int:
        query = select(func.coalesce(func.sum(_COLUMNS.size_bytes), 0)).where(_COLUMNS.tenant == tenant)
        async with self._store.reading() as connection:
            return int(await connection.scalar(query) or 0)

    async def _owned(self, tenant: str, contents: Collection[str]) -> set[str]:
        query = select(_COLUMNS.sha256).where(_COLUMNS.tenant == tenant, _COLUMNS.sha256.in_(contents))
        async with self._store.reading() as connection:
            found = set((await connection.scalars(query)).all())
        return {sha256 for sha256 in found if self._contents.has(sha256)}


class Incoming:
    """Files on their way in; see :meth:`KeptFiles.receiving`.

    Args:
        contents: Where the contents go.
        admission: What is kept.
        wanted: The contents that are to come, in this order, each with its size in bytes.

    Attributes:
        admission: What is kept.
        wanted: The contents that are to come, in this order.
        is_whole: Whether all of it is there.
    """

    def __init__(self, contents: ContentStore, admission: Admission, wanted: dict[str, int]) -> None:
        self.admission = admission
        self.wanted = tuple(wanted)
        self.is_whole = False
        self._contents = contents
        self._left = list(wanted.items())
        self._stack = ExitStack()
        self._writer: ContentWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def write(self, data: bytes) -> None:
        """Take in what comes next; blocks while the disk works.

        Raises:
            InvalidSpecError: It is not what was announced.
            CannotWriteError: The disk is full.
        """
        while data:
            writer = self._next_writer()
            if writer is None:
                raise InvalidSpecError("data: there is more of it than was announced", field="data")
            part, data = data[: writer.missing_bytes], data[writer.missing_bytes :]
            writer.write(part)

    def finish(self) -> None:
        """Say that this is all; blocks while the disk works.

        Raises:
            InvalidSpecError: Something is missing, or is not what was announced.
            CannotWriteError: The disk is full.
        """
        if self._next_writer() is not None:
            raise InvalidSpecError("data: it ends too early", field="data")
        self.is_whole = True

    def _next_writer(self) -> ContentWriter | None:
        """Who takes what comes next; what is complete is put in place."""
        while self._writer is None or not self._writer.missing_bytes:
            if self._writer is not None:
                self._writer.finish()
                self._stack.close()
                self._writer = None
            if not self._left:
                return None
            self._writer = self._stack.enter_context(self._contents.begin(*self._left.pop(0)))
        return self._writer


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
