"""The part of the client about the versions that endpoints have and had."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path

from tiercel.broker.client.connection import Connection
from tiercel.broker.conversion import endpoint_from_proto
from tiercel.core.endpoint_views import EndpointInfo, VersionInfo
from tiercel.core.errors import InvalidSpecError, NotFoundError, TiercelError, UnavailableError, wrong_field
from tiercel.core.lineage import Lineage
from tiercel.core.model_files import MODEL_FILE
from tiercel.core.models import Difference, ModelCard, differences
from tiercel.core.wire import from_proto
from tiercel.v1 import jobs_pb2, lineage_pb2, lineage_pb2_grpc, models_pb2, models_pb2_grpc


class Models:
    """The versions of the tenant's endpoints: what they are, their files, and which of them answers.

    Args:
        connection: To the broker.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self, endpoint: str = "") -> tuple[VersionInfo, ...]:
        """Every version that the tenant's endpoints have and had, or those of one endpoint, the newest first.

        Raises:
            NotFoundError: The tenant has no such endpoint.
        """
        stub = self._connection.stub
        response = await self._connection.call(stub.ListEndpoints, jobs_pb2.ListEndpointsRequest())
        found = [endpoint_from_proto(each) for each in response.endpoints if endpoint in {"", each.name}]
        if endpoint and not found:
            message = f"endpoint: there is no endpoint {endpoint!r}; 'tiercel endpoints' lists yours"
            raise NotFoundError(message, field="endpoint")
        return tuple(version for each in found for version in reversed(each.versions))

    async def show(self, endpoint: str, version: int | None = None) -> ModelCard:
        """All that is known of a version: what it is, where its files are, and where it comes from.

        Args:
            endpoint: The endpoint.
            version: Its number; None for the one that shall answer.

        Raises:
            NotFoundError: The tenant has no such endpoint, or it no such version.
        """
        known = await self.list(endpoint)
        if version is None:
            version = next((each.version for each in known if each.live), 0)
        found = next((each for each in known if each.version == version), None)
        if found is None:
            numbers = ", ".join(str(each.version) for each in reversed(known)) or "none"
            message = f"version: endpoint {endpoint!r} has no version {version or 'that answers'}; there is {numbers}"
            raise NotFoundError(message, field="version")
        stub = lineage_pb2_grpc.LineageServiceStub(self._connection.channel)
        request = lineage_pb2.GetLineageRequest(endpoint=endpoint, version=version)
        response = await self._connection.call(stub.GetLineage, request)
        return ModelCard(found, from_proto(Lineage, response.versions[0]))

    async def compare(self, first: tuple[str, int | None], second: tuple[str, int | None]) -> tuple[Difference, ...]:
        """In what two versions differ, each named by its endpoint and number, or None for the one that shall answer.

        Raises:
            NotFoundError: The tenant has no such endpoint, or it no such version.
        """
        return differences(await self.show(*first), await self.show(*second))

    async def pull(
        self,
        endpoint: str,
        version: int | None = None,
        to: str | Path = ".",
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> Path:
        """Fetch the model of a version, whole and with its SHA-256 checked, or nothing.

        Args:
            endpoint: The endpoint.
            version: Its number; None for the one that shall answer.
            to: The folder, which gets ``ENDPOINT-VERSION.onnx``; made when missing. A model with weights beside its
                own file is a folder ``ENDPOINT-VERSION`` there, with ``model.onnx`` and ``model.onnx.data``.
            progress: Called with the bytes that are there and all there are.

        Returns:
            Where its ONNX file is.

        Raises:
            NotFoundError: The tenant has no such endpoint, or it keeps no files of such a version.
            InvalidSpecError: The folder cannot be written to.
            TiercelError: It did not come, or arrived damaged.
        """
        found = (await self.show(endpoint, version)).version
        folder = Path(to)
        target = folder / f"{endpoint}-{found.version}.onnx"
        part = folder / f".{secrets.token_hex(8)}.part"
        made = [part]
        try:
            made += (each for each in (folder, *folder.parents) if not each.exists())
            await asyncio.to_thread(part.mkdir, parents=True)
            model = part / MODEL_FILE
            await self._fetch(found, MODEL_FILE, found.sha256, model, progress)
            from tiercel.core.onnx_data import DATA_FILE, data_of

            data = await asyncio.to_thread(data_of, model)
            if data is None:
                await asyncio.to_thread(os.replace, model, target)
                return target
            await self._fetch(found, DATA_FILE, data.sha256, part / DATA_FILE, progress)
            return await asyncio.to_thread(_put_folder, part, folder / f"{endpoint}-{found.version}")
        except OSError as error:
            message = f"to: {target} cannot be written ({error.strerror}); choose another folder"
            raise InvalidSpecError(message, field="to") from error
        finally:
            await asyncio.to_thread(_remove_empty, made)

    async def _fetch(
        self,
        version: VersionInfo,
        name: str,
        sha256: str,
        part: Path,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        """Fetch a file of a version, which has to have this SHA-256."""
        stub = models_pb2_grpc.ModelsServiceStub(self._connection.channel)
        digest, have, size_bytes = hashlib.sha256(), 0, 0

        async def attempt() -> AsyncGenerator[bytes]:
            nonlocal size_bytes
            request = models_pb2.FetchModelRequest(
                endpoint=version.endpoint, version=version.version, offset_bytes=have, file=name
            )
            async with aclosing(self._connection.stream(stub.FetchModel, request)) as responses:
                async for response in responses:
                    size_bytes = response.size_bytes or size_bytes
                    if response.data:
                        yield response.data
            if have < size_bytes:
                raise UnavailableError(f"The broker at {self._connection.address} ended the stream.")

        with part.open("xb") as writer:
            async with aclosing(self._connection.resumed(attempt)) as pieces:
                async for piece in pieces:
                    have += len(piece)
                    if have > size_bytes:
                        break
                    digest.update(piece)
                    await asyncio.to_thread(writer.write, piece)
                    if progress is not None:
                        progress(have, size_bytes)
        if have != size_bytes or digest.hexdigest() != sha256:
            raise TiercelError(f"{version.endpoint}:{version.version} arrived damaged: its SHA-256 differs. Try again.")

    async def promote(self, endpoint: str, version: int | None = None) -> EndpointInfo:
        """Let a version of an endpoint answer, whatever is newer or better; the broker keeps to it.

        It stays whatever is delivered, unless it is the newest: then better ones follow by themselves, as ever.

        Args:
            endpoint: Its name.
            version: One whose files are kept; None for the newest.

        Raises:
            NotFoundError: The tenant has no such endpoint, or it has no such version any more.
            InvalidSpecError: The version cannot answer, or it is not clear which is meant.
        """
        request = jobs_pb2.PromoteVersionRequest(endpoint=endpoint, version=version or 0)
        response = await self._connection.call(self._connection.stub.PromoteVersion, request)
        return endpoint_from_proto(response.endpoint)

    async def rollback(self, endpoint: str, version: int | None = None) -> EndpointInfo:
        """Let an earlier version of an endpoint answer again; it then stays whatever is delivered.

        Without a number, who goes back at the same moment as somebody else does not go back twice.

        Args:
            endpoint: Its name.
            version: One whose files are kept; None for the one that answered before the present one.

        Raises:
            NotFoundError: The tenant has no such endpoint, or it has no such version any more.
            InvalidSpecError: The version cannot answer, or it is not clear which is meant.
        """
        known = await self.list(endpoint) if version is None else ()
        live = next((each.version for each in known if each.live), 0)
        request = jobs_pb2.RollBackVersionRequest(endpoint=endpoint, version=version or 0, instead_of=live)
        response = await self._connection.call(self._connection.stub.RollBackVersion, request)
        return endpoint_from_proto(response.endpoint)

    async def pin(self, endpoint: str, version: int | None = None) -> EndpointInfo:
        """Let a version of an endpoint answer and stay whatever is delivered, until another one is promoted.

        Args:
            endpoint: Its name.
            version: One whose files are kept; None for the one that answers.

        Raises:
            NotFoundError: The tenant has no such endpoint, or it has no such version any more.
            InvalidSpecError: The version cannot answer, or it is not clear which is meant.
        """
        request = jobs_pb2.PromoteVersionRequest(endpoint=endpoint, version=version or 0, pin=True)
        response = await self._connection.call(self._connection.stub.PromoteVersion, request)
        return endpoint_from_proto(response.endpoint)

    async def remove(self, endpoint: str, version: int) -> None:
        """Remove the files of a version that does not answer, from all nodes and for good; what is known of it stays.

        Raises:
            NotFoundError: The tenant has no such endpoint, or it keeps no files of such a version.
            InvalidSpecError: The version answers.
        """
        stub = models_pb2_grpc.ModelsServiceStub(self._connection.channel)
        request = models_pb2.RemoveVersionRequest(endpoint=endpoint, version=version)
        await self._connection.call(stub.RemoveVersion, request)

    async def keep(self, endpoint: str, count: int) -> None:
        """Keep the files of so many of an endpoint's newest versions, beside the one that answers; others go at once.

        Args:
            endpoint: Its name.
            count: 1 to 100; of an endpoint with variants, of each of them.

        Raises:
            NotFoundError: The tenant has no such endpoint.
            InvalidSpecError: That is out of bounds.
        """
        if not 0 < count < 2**32:
            raise wrong_field("count", f"{count} is not a number of versions to keep; give 1 to 100")
        stub = models_pb2_grpc.ModelsServiceStub(self._connection.channel)
        await self._connection.call(stub.KeepVersions, models_pb2.KeepVersionsRequest(endpoint=endpoint, count=count))


def _put_folder(part: Path, target: Path) -> Path:
    """Put a model with its weights in its place, instead of one that was fetched before; returns its ONNX file."""
    from tiercel.core.onnx_data import DATA_FILE

    target.mkdir(exist_ok=True)
    for name in (DATA_FILE, MODEL_FILE):
        (part / name).replace(target / name)
    return target / MODEL_FILE


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove the first with all that is in it, and the others, innermost first, where they have nothing in them."""
    shutil.rmtree(folders[0], ignore_errors=True)
    for folder in folders[1:]:
        with contextlib.suppress(OSError):
            folder.rmdir()
