"""Files of versions that several nodes are to have: taken from one node and given to others while they may be needed.

What nodes say is believed no further than of checkpoints (:mod:`.checkpoints`); each version is one file, as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
from typing import TYPE_CHECKING, BinaryIO

from tiercel.broker.store.arrivals import Arrivals
from tiercel.broker.store.carried import (
    CHUNK_BYTES,
    Checkpoint,
    CheckpointFile,
    CheckpointWriter,
    check_files,
    check_whole,
    manifest_of,
    read_manifest,
)
from tiercel.broker.store.disk_room import DiskRoom
from tiercel.broker.store.errors import room_on
from tiercel.core.accuracy import ACCURACY_FILE
from tiercel.core.cheap_variants import CHEAP
from tiercel.core.deploying import DEFAULT_MODEL_BYTES, most_version_bytes
from tiercel.core.endpoints import Moved
from tiercel.core.errors import NotFoundError, StoreDamagedError, UnavailableError, wrong_field
from tiercel.core.model_files import MODEL_FILE, REFERENCE_FILE
from tiercel.core.onnx_data import DATA_FILE, DataDigest, data_of
from tiercel.core.onnx_signature import read_signature

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from tiercel.broker.store.arrivals import Arrival, Intake
    from tiercel.core.endpoints import Signature

_FILE_NAMES = frozenset({MODEL_FILE, DATA_FILE, REFERENCE_FILE, ACCURACY_FILE, *(kind.file for kind in CHEAP)})
# Of the longest name of an endpoint with the largest number of a version.
_KEY_CHARACTERS = 63 + 1 + 18
_KEY = re.compile(r"([a-z0-9][a-z0-9._-]{0,62})@([1-9][0-9]{0,17})")


class VersionStore:
    """Keeps files of versions in a folder.

    Args:
        folder: Where they are; made when missing. What was never finished stays until :meth:`drop_left_over`.
        model_bytes: What a model may have, with its weights beside it.
        room: The disk's, where others share it.
    """

    def __init__(self, folder: Path, model_bytes: int = DEFAULT_MODEL_BYTES, room: DiskRoom | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._model_bytes = model_bytes
        self._room = room or DiskRoom(folder)
        self._held: dict[str, dict[int, str]] = {}
        self._fetched: dict[tuple[str, int, str], Moved] = {}
        self._arrived = asyncio.Event()
        for path in folder.iterdir():
            match = _KEY.fullmatch(path.name)
            if match is not None:
                self.finished(match[1], int(match[2]))
            elif not path.name.startswith(".") or "@" not in path.name:  # nobody goes on with what was being deployed
                path.unlink()
        self._arrivals = Arrivals(folder, self._room, most_version_bytes(model_bytes))

    def held(self, endpoint: str, *, arriving: bool = False) -> Mapping[int, str]:
        """SHA-256 of the ONNX files of the versions of an endpoint that are here, by number.

        Args:
            endpoint: The endpoint.
            arriving: Also of those of which a part is here, or is to come next.
        """
        held = self._held.get(endpoint, {})
        if not arriving:
            return held
        coming = {number: sha256_of(each.files) for number, each in self._arriving(endpoint).items()}
        return {**coming, **held}

    def begin(self, endpoint: str, version: int, files: Sequence[CheckpointFile], *, resumes: bool = False) -> Intake:
        """Begin to take in a version; once it is whole, :meth:`finished` is to be called.

        Args:
            endpoint: The endpoint.
            version: The version's number.
            files: What comes, in this order.
            resumes: Whether it may begin behind what is here of the same files.

        Raises:
            InvalidSpecError: What is announced is not taken; says why.
            CannotWriteError: The disk is full, or nearly.
        """
        key = f"{endpoint}@{version}"
        if not _KEY.fullmatch(key):
            raise wrong_field("header.endpoint", f"{key!r} is no version of an endpoint")
        self._check(files)
        names = {file.name for file in files}
        if MODEL_FILE not in names or not names <= _FILE_NAMES:
            raise wrong_field("header.files", f"a version has {MODEL_FILE}, and of others {', '.join(_FILE_NAMES)}")
        return self._arrivals.begin(key, Checkpoint(key, tuple(files)), resumes=resumes)

    def drop_left_over(self) -> None:
        """Remove what the broker's last life had taken in of versions that nobody has gone on to send."""
        self._arrivals.drop_left_over()

    def arrived(self, endpoint: str, version: int) -> Moved | None:
        """How much has come of a version that is being taken in; None where none is."""
        arrival = self._arrivals.get(f"{endpoint}@{version}")
        if arrival is None or not arrival.is_open:
            return None
        return Moved(arrival.here_bytes, arrival.total_bytes)

    def fetched(self, endpoint: str, version: int) -> Mapping[str, Moved]:
        """How much of a version nodes have read that are reading it now, by node."""
        return {
            node: moved
            for (name, number, node), moved in self._fetched.items()
            if (name, number) == (endpoint, version)
        }

    def upload(self, files: Sequence[CheckpointFile]) -> VersionUpload:
        """Begin to take in the files of a version whose number is not known yet.

        Raises:
            InvalidSpecError: What is announced is not taken; says why.
            CannotWriteError: The disk is full, or nearly.
        """
        return self._room.begin(self._check(files), lambda: VersionUpload(self._folder, tuple(files)))

    def _check(self, files: Sequence[CheckpointFile]) -> int:
        """What they have together, if that may be."""
        model_bytes = sum(file.size_bytes for file in files if file.name in {MODEL_FILE, DATA_FILE})
        if model_bytes > self._model_bytes:
            raise wrong_field(
                "file",
                f"the model has {model_bytes} bytes with its weights, and this broker takes {self._model_bytes}; "
                "who operates it can set more (TIERCEL_MODEL_BYTES)",
            )
        return check_files(files, most_version_bytes(self._model_bytes))

    def finished(self, endpoint: str, version: int) -> None:
        """A version was taken in."""
        self._held.setdefault(endpoint, {})[version] = sha256_of(self._find_whole(endpoint, version).files)
        self._arrived.set()
        self._arrived = asyncio.Event()

    async def wait_file(
        self, endpoint: str, version: int, sha256: str, name: str = MODEL_FILE
    ) -> tuple[BinaryIO, CheckpointFile]:
        """A file of a version and what it is, once it is here: open, and where it begins.

        Args:
            endpoint: The endpoint.
            version: The version's number.
            sha256: Of the ONNX file, hexadecimal.
            name: Of the file.

        Raises:
            NotFoundError: The version has no such file.
        """
        while self.held(endpoint).get(version) != sha256:
            await self._arrived.wait()
        return await asyncio.to_thread(self._open_file, endpoint, version, name)

    def _open_file(self, endpoint: str, version: int, name: str) -> tuple[BinaryIO, CheckpointFile]:
        file = self._path(endpoint, version).open("rb")
        try:
            for each in read_manifest(file).files:
                if each.name == name:
                    return file, each
                file.seek(each.size_bytes, os.SEEK_CUR)
        except BaseException:
            file.close()
            raise
        file.close()
        raise NotFoundError(f"file: version {version} of endpoint {endpoint!r} has no {name[:80]!r}", field="file")

    def find(self, endpoint: str, version: int) -> Checkpoint:
        """What is here of a version, or on its way.

        Raises:
            UnavailableError: Nothing, so far.
        """
        arrival = self._arrivals.get(f"{endpoint}@{version}")
        if arrival is not None and arrival.is_open:
            return Checkpoint(f"{endpoint}@{version}", arrival.files)
        return self._find_whole(endpoint, version)

    def _find_whole(self, endpoint: str, version: int) -> Checkpoint:
        try:
            with self._path(endpoint, version).open("rb") as file:
                return read_manifest(file)
        except (FileNotFoundError, ValueError):
            raise _not_here(endpoint, version) from None

    async def read(self, endpoint: str, version: int, node_id: str, offset: int = 0) -> AsyncGenerator[bytes]:
        """The content of its files for a node, one after the other, in pieces of up to 256 KiB, as far as it comes.

        Args:
            endpoint: The endpoint.
            version: The version's number.
            node_id: The node.
            offset: How much of it is left out.

        Raises:
            UnavailableError: The rest is not here yet.
        """
        arrival = self._arrivals.get(f"{endpoint}@{version}")
        arrival = arrival if arrival is not None and arrival.is_open else None
        path = self._path(endpoint, version) if arrival is None else arrival.path
        try:
            file = path.open("rb")
        except FileNotFoundError:  # let go of since it was found
            raise _not_here(endpoint, version) from None
        with file:
            total = sum(each.size_bytes for each in read_manifest(file).files)
            file.seek(offset, os.SEEK_CUR)
            read = offset
            try:
                while read < total:
                    here = total if arrival is None else await arrival.wait_beyond(read)
                    piece = await asyncio.to_thread(file.read, min(CHUNK_BYTES, here - read))
                    yield piece
                    read += len(piece)
                    self._fetched[endpoint, version, node_id] = Moved(read, total)
            finally:
                self._fetched.pop((endpoint, version, node_id), None)

    def open_whole(self, endpoint: str, version: int) -> BinaryIO | None:
        """The file that holds a version with what is said of it, or None; it is replaced, never changed."""
        try:
            return self._path(endpoint, version).open("rb")
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def taking_back(self, endpoint: str, version: int, sha256: str, size_bytes: int) -> Iterator[Path]:
        """Where to put a file that :meth:`open_whole` gave out once; in place when the block is left, unless it fails.

        Args:
            endpoint: The endpoint.
            version: Its version.
            sha256: Of the ONNX file that it has.
            size_bytes: What the file has.

        Raises:
            CannotWriteError: The disk is full, or nearly.
            StoreDamagedError: After the block: it is not what it should be.
        """
        key = f"{endpoint}@{version}"
        scratch = self._folder / f".{key}.{secrets.token_hex(4)}.part"
        try:
            with self._room.growing(scratch, size_bytes), room_on(self._folder):
                yield scratch
            if sha256_of(check_whole(scratch, key, most_version_bytes(self._model_bytes)).files) != sha256:
                raise StoreDamagedError(f"what came back as version {version} of endpoint {endpoint!r} is another one")
            scratch.replace(self._path(endpoint, version))
        finally:
            scratch.unlink(missing_ok=True)

    def keep_only(self, endpoint: str, versions: Collection[int]) -> None:
        """Remove the other versions of an endpoint."""
        known = self._held.get(endpoint, {})
        for version in known.keys() - set(versions):
            self._path(endpoint, version).unlink(missing_ok=True)
            del known[version]
        for number in self._arriving(endpoint).keys() - set(versions):
            self._arrivals.drop(f"{endpoint}@{number}")

    def keep_endpoints(self, endpoints: Collection[str]) -> None:
        """Remove what is of other endpoints."""
        coming = (name.rpartition("@")[0] for name in self._arrivals.all())
        for endpoint in {*self._held, *coming} - set(endpoints):
            self.keep_only(endpoint, ())

    def _arriving(self, endpoint: str) -> dict[int, Arrival]:
        """Its versions that are on their way in, by number."""
        begin = f"{endpoint}@"
        return {
            int(name.removeprefix(begin)): arrival
            for name, arrival in self._arrivals.all().items()
            if name.startswith(begin)
        }

    def _path(self, endpoint: str, version: int) -> Path:
        return self._folder / f"{endpoint}@{version}"


def _not_here(endpoint: str, version: int) -> UnavailableError:
    return UnavailableError(f"version {version} of endpoint {endpoint!r} is not here yet; try again")


class VersionUpload(CheckpointWriter):
    """Takes in the files of a version whose number is known only once they are here.

    Args:
        folder: The store's.
        files: What was announced, the model first.
    """

    def __init__(self, folder: Path, files: tuple[CheckpointFile, ...]) -> None:
        super().__init__(folder, "upload", Checkpoint(" " * _KEY_CHARACTERS, files))
        self._folder = folder
        self._files = files

    def signature(self) -> Signature | None:
        """What the model takes and gives, once all of it is here; None where it does not say.

        Raises:
            InvalidSpecError: Something is missing.
            CannotWriteError: The disk is full.
        """
        self.flush()
        return read_signature(self._scratch, self._begin, self._files[0].size_bytes)

    def check_data(self) -> None:
        """Check that what came beside the model is what the model says of its weights, once all of it is here.

        Raises:
            InvalidSpecError: It is not.
        """
        said = data_of(self._scratch, self._begin, self._files[0].size_bytes)
        came = next((file for file in self._files if file.name == DATA_FILE), None)
        if said != (None if came is None else DataDigest(came.size_bytes, came.sha256)):
            raise wrong_field("data", f"is not what the model says of {DATA_FILE}; send both with 'tiercel deploy'")

    def put(self, endpoint: str, version: int) -> None:
        """Put it in place as this version for good; the store is told then (:meth:`VersionStore.finished`). Blocks."""
        key = f"{endpoint}@{version}"
        with room_on(self._folder):
            self._file.seek(0)
            self._file.write(manifest_of(Checkpoint(key, self._files), self._begin))
        self._target = self._folder / key
        self.finish()


def sha256_of(files: Sequence[CheckpointFile]) -> str:
    """Of the ONNX file among those of a version, hexadecimal; empty where there is none."""
    return next((file.sha256 for file in files if file.name == MODEL_FILE), "")
