"""An artefact store in a folder, such as one of another machine that is mounted here."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import shutil
import stat
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from tiercel.broker.store.artefacts import failures
from tiercel.broker.store.artefacts.contract import CHUNK_BYTES, MAX_HELD, MAX_MARK_BYTES, OWNER_MARK
from tiercel.broker.store.artefacts.writing import new_file, sync
from tiercel.broker.store.errors import room_on
from tiercel.core.blobs import BlobError, BlobFolder, is_sha256

if TYPE_CHECKING:
    from collections.abc import Callable

    from tiercel.core.checkpoints import Artefact

_T = TypeVar("_T")
RESERVE_BYTES = 512 * 1024**2
# Calls that a mount has not given back; of more none is begun.
MAX_HELD_THREADS = 4


class FolderArtefacts:
    """Keeps artefacts in a folder.

    Each call has a thread of its own: a mount whose other side is gone may hold it for ever, and must hold nobody else,
    nor the end of the broker.

    Args:
        folder: Where they are; its parent exists, so that nothing is written below a mount that is not there.
        reserve_bytes: What artefacts leave of the disk.
    """

    def __init__(self, folder: Path, reserve_bytes: int = RESERVE_BYTES) -> None:
        self._folder = folder
        self._blobs = BlobFolder(folder)
        self._reserve_bytes = reserve_bytes
        self._held_threads = 0

    @property
    def where(self) -> str:
        """The folder."""
        return str(self._folder)

    async def put(self, artefact: Artefact, source: BinaryIO, seconds: float) -> None:
        """See :class:`.contract.Artefacts`."""
        await self._run(seconds, lambda until: self._put(artefact, source, until))

    async def get(self, artefact: Artefact, target: Path, seconds: float) -> None:
        """See :class:`.contract.Artefacts`."""
        await self._run(seconds, lambda until: self._get(artefact, target, until))

    async def has(self, artefact: Artefact, seconds: float) -> bool:
        """See :class:`.contract.Artefacts`."""
        return await self._run(seconds, lambda _: self._blobs.size(artefact.sha256) == artefact.size_bytes)

    async def delete(self, sha256: str, seconds: float) -> None:
        """See :class:`.contract.Artefacts`."""
        await self._run(seconds, lambda _: self._blobs.path(sha256).unlink(missing_ok=True))

    async def held(self, seconds: float) -> dict[str, int]:
        """See :class:`.contract.Artefacts`."""
        return await self._run(seconds, lambda _: self._held())

    async def remove_unfinished(self, seconds: float) -> None:
        """See :class:`.contract.Artefacts`."""
        await self._run(seconds, lambda _: self._blobs.remove_unfinished())

    async def read_mark(self, seconds: float, *, name: str = OWNER_MARK) -> bytes | None:
        """See :class:`.contract.Artefacts`."""
        return await self._run(seconds, lambda _: self._read_mark(name))

    async def write_mark(self, content: bytes, seconds: float, *, only_new: bool, name: str = OWNER_MARK) -> None:
        """See :class:`.contract.Artefacts`."""
        await self._run(seconds, lambda _: self._write_mark(name, content, only_new=only_new))

    async def close(self) -> None:
        """See :class:`.contract.Artefacts`."""

    async def _run(self, seconds: float, work: Callable[[float], _T]) -> _T:
        """Do something on a thread, which gives up by itself where it can: nobody else can end it."""
        if self._held_threads >= MAX_HELD_THREADS:
            raise failures.no_answer(self.where, "it holds earlier calls still")
        until = time.monotonic() + seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._on_thread(work, until)
        except TimeoutError:
            raise failures.no_answer(self.where, f"not within {seconds:g} s") from None
        except OSError as error:
            raise failures.of_disk(self.where, error) from error

    async def _on_thread(self, work: Callable[[float], _T], until: float) -> _T:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[_T] = loop.create_future()

        def end(error: BaseException | None, result: Any) -> None:
            self._held_threads -= 1
            if outcome.done():  # nobody waits any more
                return
            if error is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(result)

        def run() -> None:
            error, result = None, None
            try:
                result = work(until)
            except Exception as raised:  # told to whoever waits
                error = raised
            with contextlib.suppress(RuntimeError):  # the broker has ended meanwhile
                loop.call_soon_threadsafe(end, error, result)

        self._held_threads += 1
        threading.Thread(target=run, name="artefacts", daemon=True).start()
        return await outcome

    def _put(self, artefact: Artefact, source: BinaryIO, until: float) -> None:
        self._make()
        if shutil.disk_usage(self._folder).free - artefact.size_bytes < self._reserve_bytes:
            raise failures.full(self.where, "little of its disk is left")
        source.seek(0)
        try:
            with self._blobs.receive() as receiver:
                while piece := source.read(CHUNK_BYTES):
                    receiver.write(artefact.sha256, artefact.size_bytes, piece)
                    _check(until)
                receiver.finish()
        except BlobError as error:
            raise failures.not_as_said(artefact, str(error)) from error

    def _get(self, artefact: Artefact, target: Path, until: float) -> None:
        try:
            source = os.open(self._blobs.path(artefact.sha256), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            raise failures.not_there(self.where, artefact) from None
        with os.fdopen(source, "rb") as file:
            status = os.fstat(source)
            if not stat.S_ISREG(status.st_mode) or status.st_size != artefact.size_bytes:
                raise failures.damaged(self.where, artefact, f"it has {status.st_size} bytes")
            with room_on(target.parent), new_file(target) as writer:
                digest, left = hashlib.sha256(), artefact.size_bytes
                while left and (piece := file.read(min(left, CHUNK_BYTES))):
                    writer.write(piece)
                    digest.update(piece)
                    left -= len(piece)
                    _check(until)
                if left or digest.hexdigest() != artefact.sha256:
                    raise failures.damaged(self.where, artefact, "its SHA-256 differs")
                sync(writer)

    def _held(self) -> dict[str, int]:
        found: dict[str, int] = {}
        with contextlib.suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                if not is_sha256(entry.name) or not entry.is_file(follow_symlinks=False):
                    continue
                if len(found) == MAX_HELD:
                    raise failures.refused(self.where, f"it has more than {MAX_HELD} artefacts")
                found[entry.name] = entry.stat(follow_symlinks=False).st_size
        return found

    def _read_mark(self, name: str) -> bytes | None:
        try:
            mark = os.open(self._folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        with os.fdopen(mark, "rb") as file:
            return file.read(MAX_MARK_BYTES)

    def _write_mark(self, name: str, content: bytes, *, only_new: bool) -> None:
        self._make()
        scratch = self._folder / f".{name}.{secrets.token_hex(4)}.part"
        try:
            with scratch.open("xb") as file:
                file.write(content)
                sync(file)
            if only_new:
                with contextlib.suppress(FileExistsError):
                    os.link(scratch, self._folder / name)
            else:
                scratch.replace(self._folder / name)
        finally:
            scratch.unlink(missing_ok=True)

    def _make(self) -> None:
        with contextlib.suppress(FileExistsError):
            self._folder.mkdir(mode=0o700)


def _check(until: float) -> None:
    if time.monotonic() > until:
        raise TimeoutError
