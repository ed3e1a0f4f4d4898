"""Sends a project: asks what the broker lacks, folder by folder, and sends that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tiercel.broker.client.projects.known_hashes import KnownHashes
from tiercel.core.errors import InvalidSpecError, OverloadedError, UnavailableError
from tiercel.core.projects import OBJECTS_AT_A_TIME, PIECE_BYTES, Kind, decode_folder, refuse_project
from tiercel.v1 import projects_pb2

if TYPE_CHECKING:
    from tiercel.broker.client.connection import Connection
    from tiercel.broker.client.projects.packing import PackedProject

    Progress = Callable[[int, int], None]

# A call that breaks is begun again with what is missing then.
_ATTEMPTS = 5
_PAUSE_SECONDS = 1.0
_SECONDS = 60.0
_SLOWEST_BYTES_PER_SECOND = 64 * 1024


async def project_limit(connection: Connection) -> int:
    """What the files of a project may have together at this broker, in bytes."""
    request = projects_pb2.FindMissingObjectsRequest()
    return int((await connection.call(connection.projects.FindMissingObjects, request)).project_limit_bytes)


async def send_project(
    connection: Connection, packed: PackedProject, *, whole: bool = False, progress: Progress | None = None
) -> int:
    """Send what the broker lacks of a project.

    Args:
        connection: To the broker.
        packed: The project.
        whole: Ask for each object, although the root is there.
        progress: Called with the bytes that were sent, and those that are to be sent.

    Returns:
        The bytes of the objects that were sent.

    Raises:
        InvalidSpecError: A file changed while it was being sent.
        QuotaExceededError: The tenant has no more room.
    """
    sent = 0
    for attempt in range(1, _ATTEMPTS + 1):
        missing = await _missing(connection, packed, whole=whole)
        if not missing:
            break
        total = sent + sum(_size(packed, name) for name in missing)

        def note(size: int, total: int = total) -> None:
            nonlocal sent
            sent += size
            if progress is not None:
                progress(sent, total)

        try:
            await _send(connection, packed, missing, note)
            break
        except (UnavailableError, OverloadedError):
            if attempt == _ATTEMPTS:
                raise
            await asyncio.sleep(_PAUSE_SECONDS * attempt)
        except OSError as error:
            raise refuse_project(f"{error.filename} cannot be read ({error.strerror}); submit again") from error
        except InvalidSpecError as error:
            await asyncio.to_thread(KnownHashes(Path(packed.project.folder).resolve()).forget)
            raise refuse_project(f"a file changed while it was being sent ({error.message}); submit again") from error
    return sent


async def _missing(connection: Connection, packed: PackedProject, *, whole: bool) -> Sequence[str]:
    """What is to be sent: files, then folders, those below another before it."""
    if whole:
        folders = set(await _ask(connection, packed.folders))
        files: Iterable[str] = packed.files
    else:
        folders = await _missing_folders(connection, packed)
        listings = (decode_folder(packed.folders[name]) for name in folders)
        files = {each.content: None for listing in listings for each in listing if each.content in packed.files}
    missing_files = await _ask(connection, files)
    return [*missing_files, *(name for name in packed.folders if name in folders)]


async def _missing_folders(connection: Connection, packed: PackedProject) -> set[str]:
    """Asks about what lies in folders that are missing, and about nothing that lies in those that are there."""
    found: set[str] = set()
    level = {packed.project.sha256}
    while level:
        missing = set(await _ask(connection, level))
        found |= missing
        listings = (decode_folder(packed.folders[name]) for name in missing)
        level = {each.content for listing in listings for each in listing if each.kind is Kind.FOLDER} - found
    return found


async def _ask(connection: Connection, names: Iterable[str]) -> list[str]:
    asked = list(names)
    missing: list[str] = []
    for start in range(0, len(asked), OBJECTS_AT_A_TIME):
        request = projects_pb2.FindMissingObjectsRequest(sha256=asked[start : start + OBJECTS_AT_A_TIME])
        response = await connection.call(connection.projects.FindMissingObjects, request)
        missing.extend(response.sha256)
    return missing


async def _send(
    connection: Connection, packed: PackedProject, names: Sequence[str], note: Callable[[int], None]
) -> None:
    async def requests() -> AsyncGenerator[projects_pb2.SendObjectsRequest]:
        messages = _messages(packed, names)
        while (message := await asyncio.to_thread(next, messages, None)) is not None:
            yield message
            note(sum(len(piece.data) for piece in message.pieces))

    size = sum(_size(packed, name) for name in names)
    await connection.send(
        connection.projects.SendObjects, requests(), seconds=_SECONDS + size / _SLOWEST_BYTES_PER_SECOND
    )


def _messages(packed: PackedProject, names: Sequence[str]) -> Iterator[projects_pb2.SendObjectsRequest]:
    """Objects in messages of up to 1 MiB of content, small ones together."""
    message, room = projects_pb2.SendObjectsRequest(), PIECE_BYTES
    for name in names:
        size = _size(packed, name)
        for data in _pieces(packed, name):
            if len(data) > room:
                yield message
                message, room = projects_pb2.SendObjectsRequest(), PIECE_BYTES
            message.pieces.add(sha256=name, size_bytes=size, data=data)
            room -= len(data)
    yield message


def _pieces(packed: PackedProject, name: str) -> Iterator[bytes]:
    if name in packed.files:
        return _file_pieces(*packed.files[name])
    listing = packed.folders[name]
    return (listing[start : start + PIECE_BYTES] for start in range(0, max(1, len(listing)), PIECE_BYTES))


def _file_pieces(path: Path, size: int) -> Iterator[bytes]:
    """A file as it was packed: one that has grown meanwhile is not read on for ever."""
    left = size
    with path.open("rb") as file:
        while True:
            data = file.read(min(PIECE_BYTES, left))
            yield data
            left -= len(data)
            if not left or not data:
                return


def _size(packed: PackedProject, name: str) -> int:
    return packed.files[name][1] if name in packed.files else len(packed.folders[name])
