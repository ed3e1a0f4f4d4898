"""Fetches files of jobs into a folder, each whole and verified or not at all, and never anything outside of it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path

from tiercel.broker.client.connection import Connection
from tiercel.core.errors import InvalidSpecError, NotFoundError, TiercelError, UnavailableError, wrong_field
from tiercel.core.file_views import FileInfo
from tiercel.core.path_patterns import PathPatterns, path_problem, pattern_problem
from tiercel.core.wire import from_proto
from tiercel.v1 import files_pb2

Progress = Callable[[FileInfo, int], None]
"""Told now and then how many bytes of a file are there."""


async def list_files(connection: Connection, job_id: str) -> tuple[FileInfo, ...]:
    """What is kept of a job, by path."""
    response = await connection.call(connection.files.ListFiles, files_pb2.ListFilesRequest(job_id=job_id))
    return tuple(from_proto(FileInfo, file) for file in response.files)


async def download_files(
    connection: Connection, job_id: str, to: Path, pattern: str, progress: Progress | None
) -> tuple[Path, ...]:
    """Fetch files of a job; what is in the folder already with the same content is left as it is.

    Args:
        connection: To the broker.
        job_id: The job.
        to: The folder; made when missing.
        pattern: Which files.
        progress: Who wants to know how far it is.

    Returns:
        Where they are, by path.

    Raises:
        NotFoundError: The job has no such file.
        InvalidSpecError: That is no pattern, or they cannot be written there.
        TiercelError: They did not come, or arrived damaged.
    """
    if problem := pattern_problem(pattern):
        raise wrong_field("pattern", f"{pattern[:64]!r} {problem}")
    patterns = PathPatterns([pattern])
    files = [file for file in await list_files(connection, job_id) if patterns.matches(file.path)]
    if not files:
        message = f"pattern: job {job_id} has no file that matches {pattern!r}; 'tiercel files {job_id}' lists them"
        raise NotFoundError(message, field="pattern")
    places = []
    for file in files:
        try:
            target = await asyncio.to_thread(place_in, to, file.path)
            if not await asyncio.to_thread(_has_content, target, file):
                await _fetch(connection, job_id, file, target, progress)
        except OSError as error:
            message = f"to: {file.path} cannot be written into {to} ({error.strerror}); choose another folder"
            raise InvalidSpecError(message, field="to") from error
        if progress is not None:
            progress(file, file.size_bytes)
        places.append(target)
    return tuple(places)


def place_in(folder: Path, path: str) -> Path:
    """Where a file goes; makes the folders that it needs.

    Raises:
        InvalidSpecError: That is not inside of the folder.
        OSError: The folders cannot be made.
    """
    if problem := path_problem(path):
        raise wrong_field("path", f"{path[:80]!r} {problem}")
    folder.mkdir(parents=True, exist_ok=True)
    inside, place = folder.resolve(), folder
    *folders, name = path.split("/")
    for part in folders:
        place /= part
        if not place.resolve().is_relative_to(inside):  # first, as a folder must not be made behind a link either
            message = f"to: {place} is a link that leads out of {folder}; remove it, or choose another folder"
            raise InvalidSpecError(message, field="to")
        place.mkdir(exist_ok=True)
    return place / name


async def _fetch(connection: Connection, job_id: str, file: FileInfo, target: Path, progress: Progress | None) -> None:
    part = target.with_name(f".{secrets.token_hex(8)}.part")
    digest, received = hashlib.sha256(), 0
    try:
        with part.open("xb") as writer:
            async with aclosing(_content(connection, job_id, file)) as pieces:
                async for piece in pieces:
                    received += len(piece)
                    if received > file.size_bytes:
                        break
                    digest.update(piece)
                    await asyncio.to_thread(writer.write, piece)
                    if progress is not None:
                        progress(file, received)
        if (received, digest.hexdigest()) != (file.size_bytes, file.sha256):
            raise TiercelError(f"{file.path} arrived damaged: its SHA-256 differs. Try again.")
        await asyncio.to_thread(os.replace, part, target)
    finally:
        await asyncio.to_thread(part.unlink, missing_ok=True)


async def _content(connection: Connection, job_id: str, file: FileInfo) -> AsyncGenerator[bytes]:
    """The content of a file in pieces; goes on by itself when the connection breaks."""
    have = 0

    async def attempt() -> AsyncGenerator[bytes]:
        nonlocal have
        request = files_pb2.FetchFileRequest(job_id=job_id, path=file.path, sha256=file.sha256, offset_bytes=have)
        async with aclosing(connection.stream(connection.files.FetchFile, request)) as responses:
            async for response in responses:
                have += len(response.data)
                yield response.data
        if have < file.size_bytes:
            raise UnavailableError(f"The broker at {connection.address} ended the stream.")

    async with aclosing(connection.resumed(attempt)) as pieces:
        async for piece in pieces:
            yield piece


def _has_content(target: Path, file: FileInfo) -> bool:
    """Whether a file is there already; blocks while the disk works."""
    if target.is_symlink() or not target.is_file() or target.stat().st_size != file.size_bytes:
        return False
    with target.open("rb") as reader:
        return hashlib.file_digest(reader, "sha256").hexdigest() == file.sha256
