"""The part of the client about what is kept: files that jobs left behind, and room on disks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from tiercel.broker.client.connection import Connection
from tiercel.broker.client.downloads import Progress, download_files, list_files
from tiercel.core.disk_use import DiskUse, Removal
from tiercel.core.file_views import FileInfo
from tiercel.core.wire import from_proto
from tiercel.v1 import disk_pb2, disk_pb2_grpc


class Keeping(ABC):
    """What a client can ask about what is kept."""

    @property
    @abstractmethod
    def _connection(self) -> Connection:
        """To the broker."""

    async def files(self, job_id: str) -> tuple[FileInfo, ...]:
        """What is kept of the files that a job left behind, by path; see the spec's ``outputs``."""
        return await list_files(self._connection, job_id)

    async def download(
        self, job_id: str, to: str | Path, pattern: str = "**", *, progress: Progress | None = None
    ) -> tuple[Path, ...]:
        """Fetch files that a job left behind, each verified; nothing is written outside of the folder.

        Args:
            job_id: The job.
            to: The folder; made when missing.
            pattern: Which files, such as ``reports/*.html``; all when left out.
            progress: Called with a file and how many bytes of it are there.

        Returns:
            Where they are, by path.

        Raises:
            NotFoundError: The job has no such file.
            InvalidSpecError: That is no pattern, or the folder cannot be written to.
        """
        return await download_files(self._connection, job_id, Path(to), pattern, progress)

    async def disk_use(self) -> DiskUse:
        """What takes room: the tenant's own things at the broker, the broker's folders, and nodes."""
        stub = disk_pb2_grpc.DiskServiceStub(self._connection.channel)
        response = await self._connection.call(stub.GetDiskUse, disk_pb2.GetDiskUseRequest())
        return from_proto(DiskUse, response)

    async def collect_garbage(self, *, dry_run: bool = False) -> AsyncGenerator[Removal]:
        """Remove what the broker keeps no longer of the tenant's jobs that are over; tells of each thing that is gone.

        Args:
            dry_run: Only say what would go.
        """
        stub = disk_pb2_grpc.DiskServiceStub(self._connection.channel)
        request = disk_pb2.CollectGarbageRequest(dry_run=dry_run)
        async with aclosing(self._connection.stream(stub.CollectGarbage, request)) as responses:
            async for response in responses:
                yield from_proto(Removal, response.removal)
