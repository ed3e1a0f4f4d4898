"""An artefact store in a bucket of a store that speaks S3.

Credentials, the region and another address than Amazon's come from where all such programs take them: ``AWS_…`` in the
environment, and the files of ``~/.aws``. Nothing of what the store or its library says is repeated but codes and names
of errors, so that no secret gets into a log. What is sent is signed with its SHA-256, so that the store checks it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from s3fs import S3FileSystem

from tiercel.broker.store.artefacts import failures
from tiercel.broker.store.artefacts.contract import CHUNK_BYTES, MAX_HELD, MAX_MARK_BYTES, OWNER_MARK
from tiercel.broker.store.artefacts.s3_calls import Calls, MissingError, TakenError
from tiercel.broker.store.artefacts.writing import new_file, sync
from tiercel.core.blobs import is_sha256
from tiercel.core.tasks import run_in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from pathlib import Path

    from tiercel.core.checkpoints import Artefact

# Of what is larger, so much is in memory at a time; stores take at least 5 MiB and at most 10,000 of them.
PART_BYTES: Final = 8 * 1024**2
_MAX_PARTS: Final = 10_000
# As slowly a store may make one object of them.
_JOINED_BYTES_PER_SECOND: Final = 16 * 1024**2
_ABORT_SECONDS: Final = 5.0
_CONFIGURATION: Final = {
    "connect_timeout": 5,
    "read_timeout": 20,
    "retries": {"total_max_attempts": 1},  # who asks tries again
    "s3": {"payload_signing_enabled": True},
    # Stores other than Amazon's know no others.
    "request_checksum_calculation": "when_required",
    "response_checksum_validation": "when_required",
}


class S3Artefacts:
    """Keeps artefacts in a bucket.

    Args:
        bucket: Its name; it exists.
        prefix: Where in it, without a slash at its ends; may be empty.
    """

    def __init__(self, bucket: str, prefix: str) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._library = S3FileSystem(
            asynchronous=True, skip_instance_cache=True, use_listings_cache=False, config_kwargs=_CONFIGURATION
        )
        self._client: Any = None
        self._connecting = asyncio.Lock()

    @property
    def where(self) -> str:
        """Its URL."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    async def put(self, artefact: Artefact, source: BinaryIO, seconds: float) -> None:
        """See :class:`.contract.Artefacts`."""
        async with self._calls(seconds) as calls:
            await run_in_thread(source.seek, 0)
            if artefact.size_bytes <= PART_BYTES:
                content = await run_in_thread(source.read, PART_BYTES + 1)
                _check(artefact, len(content), hashlib.sha256(content).hexdigest())
                await calls.do("put_object", Key=self._key(artefact.sha256), Body=content)
            else:
                await self._put_in_parts(calls, artefact, source)

    async def get(self, artefact: Artefact, target: Path, seconds: float) -> None:
        """See :class:`.contract.Artefacts`."""
        digest, offset = hashlib.sha256(), 0
        async with self._calls(seconds) as calls:
            with new_file(target) as file:
                async with contextlib.aclosing(self._pieces(calls, artefact)) as pieces:
                    async for piece in pieces:
                        offset += len(piece)
                        if offset > artefact.size_bytes:
                            raise failures.damaged(self.where, artefact, "it goes on after its end")
                        digest.update(piece)
                        await run_in_thread(file.write, piece)
                if digest.hexdigest() != artefact.sha256:
                    raise failures.damaged(self.where, artefact, "its SHA-256 differs")
                await run_in_thread(sync, file)

    async def has(self, artefact: Artefact, seconds: float) -> bool:
        """See :class:`.contract.Artefacts`."""
        async with self._calls(seconds) as calls:
            return await self._has(calls, artefact)

    async def delete(self, sha256: str, seconds: float) -> None:
        """See :class:`.contract.Artefacts`."""
        async with self._calls(seconds) as calls:
            with contextlib.suppress(MissingError):
                await calls.do("delete_object", Key=self._key(sha256))

    async def held(self, seconds: float) -> dict[str, int]:
        """See :class:`.contract.Artefacts`."""
        found: dict[str, int] = {}
        async with self._calls(seconds) as calls:
            more: dict[str, str] = {}
            while True:
                page = await calls.do("list_objects_v2", Prefix=self._prefix, Delimiter="/", **more)
                for entry in page.get("Contents", ()):
                    if is_sha256(name := entry["Key"].removeprefix(self._prefix)):
                        found[name] = int(entry["Size"])
                if len(found) > MAX_HELD:
                    raise failures.refused(self.where, f"it has more than {MAX_HELD} artefacts")
                if not page.get("IsTruncated"):
                    return found
                more = {"ContinuationToken": page["NextContinuationToken"]}

    async def remove_unfinished(self, seconds: float) -> None:
        """See :class:`.contract.Artefacts`."""
        async with self._calls(seconds) as calls:
            page = await calls.do("list_multipart_uploads", Prefix=self._prefix)
            for each in page.get("Uploads", ()):
                if is_sha256(each["Key"].removeprefix(self._prefix)):
                    with contextlib.suppress(MissingError):
                        await calls.do("abort_multipart_upload", Key=each["Key"], UploadId=each["UploadId"])

    async def read_mark(self, seconds: float, *, name: str = OWNER_MARK) -> bytes | None:
        """See :class:`.contract.Artefacts`."""
        async with self._calls(seconds) as calls:
            while True:
                try:
                    found = await calls.do("get_object", Key=self._key(name))
                except MissingError:
                    return None
                with calls.trying():
                    async with found["Body"] as body:
                        return bytes(await body.read(MAX_MARK_BYTES))
                await calls.pause()

    async def write_mark(self, content: bytes, seconds: float, *, only_new: bool, name: str = OWNER_MARK) -> None:
        """See :class:`.contract.Artefacts`."""
        condition = {"IfNoneMatch": "*"} if only_new else {}
        async with self._calls(seconds) as calls:
            with contextlib.suppress(TakenError):
                await calls.do("put_object", Key=self._key(name), Body=content, **condition)

    async def close(self) -> None:
        """See :class:`.contract.Artefacts`."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _put_in_parts(self, calls: Calls, artefact: Artefact, source: BinaryIO) -> None:
        size = max(PART_BYTES, -(-artefact.size_bytes // _MAX_PARTS))
        named = {"Key": self._key(artefact.sha256)}
        upload = {**named, "UploadId": (await calls.do("create_multipart_upload", **named))["UploadId"]}
        try:
            parts: list[dict[str, Any]] = []
            digest, sent = hashlib.sha256(), 0
            while part := await run_in_thread(source.read, size):
                sent += len(part)
                if sent > artefact.size_bytes:
                    break
                await run_in_thread(digest.update, part)
                number = len(parts) + 1
                answer = await calls.do("upload_part", **upload, PartNumber=number, Body=part)
                parts.append({"ETag": answer["ETag"], "PartNumber": number})
            _check(artefact, sent, digest.hexdigest())
            await self._complete(calls, artefact, {**upload, "MultipartUpload": {"Parts": parts}})
        except BaseException:
            # Else the store keeps the parts, unseen, until the broker starts again.
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_ABORT_SECONDS):
                    await self._client.abort_multipart_upload(Bucket=self._bucket, **upload)
            raise

    async def _complete(self, calls: Calls, artefact: Artefact, upload: dict[str, Any]) -> None:
        """Have the store make an object of its parts."""
        # That may take longer than its answer is waited for: the parts are gone then, and the object is there. A store
        # that is asked again meanwhile may begin anew beside that.
        now = asyncio.get_running_loop().time
        while True:
            is_gone = False
            try:
                with calls.trying():
                    await self._client.complete_multipart_upload(Bucket=self._bucket, **upload)
                    return
            except MissingError:
                is_gone = True
            until = now() + artefact.size_bytes / _JOINED_BYTES_PER_SECOND
            while True:
                if await self._has(calls, artefact):
                    return
                if is_gone:
                    raise failures.no_answer(self.where, "it has lost the parts of what was sent")
                await calls.pause()
                if now() > until:
                    break

    async def _has(self, calls: Calls, artefact: Artefact) -> bool:
        try:
            found = await calls.do("head_object", Key=self._key(artefact.sha256))
        except MissingError:
            return False
        return bool(found["ContentLength"] == artefact.size_bytes)

    async def _pieces(self, calls: Calls, artefact: Artefact) -> AsyncGenerator[bytes]:
        """The content of an artefact; where it is cut off it goes on from there."""
        offset = 0
        while offset < artefact.size_bytes:
            async with await self._open(calls, artefact, offset) as body:
                while True:
                    piece = b""
                    with calls.trying():
                        piece = await body.read(CHUNK_BYTES)
                    if not piece:
                        break
                    offset += len(piece)
                    yield piece
            if offset < artefact.size_bytes:
                await calls.pause()

    async def _open(self, calls: Calls, artefact: Artefact, offset: int) -> Any:
        """The answer that has the rest of an artefact, whose length is right."""
        part = {"Range": f"bytes={offset}-"} if offset else {}
        try:
            found = await calls.do("get_object", Key=self._key(artefact.sha256), **part)
        except MissingError:
            raise failures.not_there(self.where, artefact) from None
        if found["ContentLength"] + offset != artefact.size_bytes:
            found["Body"].close()
            raise failures.damaged(self.where, artefact, f"it has {found['ContentLength'] + offset} bytes")
        return found["Body"]

    def _key(self, name: str) -> str:
        return f"{self._prefix}{name}"

    @contextlib.asynccontextmanager
    async def _calls(self, seconds: float) -> AsyncIterator[Calls]:
        """Calls to the bucket within a deadline."""
        calls = Calls(self.where, self._bucket)
        try:
            async with asyncio.timeout(seconds):
                calls.client = await self._connected(calls)
                yield calls
        except TimeoutError:
            raise failures.no_answer(self.where, calls.problem or f"not within {seconds:g} s") from None
        except (KeyError, TypeError, ValueError) as error:
            raise failures.refused(self.where, "what it answers is not S3") from error

    async def _connected(self, calls: Calls) -> Any:
        async with self._connecting:
            while self._client is None:
                with calls.trying():
                    self._client = await self._library.set_session()
                    break
                await calls.pause()
            return self._client


def _check(artefact: Artefact, size_bytes: int, sha256: str) -> None:
    """Nothing is stored under a name that is not its own."""
    if size_bytes != artefact.size_bytes:
        raise failures.not_as_said(artefact, f"it has not {artefact.size_bytes} bytes")
    if sha256 != artefact.sha256:
        raise failures.not_as_said(artefact, "its SHA-256 differs")
