"""The part of the client about what is kept: files that jobs left behind, and where versions come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from tiercel.broker.client.connection import Connection
from tiercel.broker.client.downloads import Progress, download_files, list_files
from tiercel.core.file_views import FileInfo
from tiercel.core.lineage import Lineage
from tiercel.core.wire import from_proto
from tiercel.v1 import lineage_pb2, lineage_pb2_grpc


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

    async def lineage(self, endpoint: str, version: int | None = None) -> tuple[Lineage, ...]:
        """Where a version of an endpoint comes from, or each of them, the newest first and without its curve.

        Args:
            endpoint: The endpoint.
            version: Which one; None for all.

        Raises:
            NotFoundError: The tenant has no such endpoint, or it no such version.
        """
        stub = lineage_pb2_grpc.LineageServiceStub(self._connection.channel)
        request = lineage_pb2.GetLineageRequest(endpoint=endpoint, version=version or 0)
        response = await self._connection.call(stub.GetLineage, request)
        return tuple(from_proto(Lineage, each) for each in response.versions)
