"""Projects as tenants have sent them: objects by content, each tenant's apart from the others'.

What one tenant has sent is not there for another, so that nobody learns of others' files by asking for them.
"""

from __future__ import annotations

import contextlib
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, Self

from tiercel.broker.store.disk_room import DiskRoom
from tiercel.broker.store.errors import taking_in
from tiercel.core.blobs import BlobFolder, is_sha256
from tiercel.core.errors import InvalidSpecError, NotFoundError, QuotaExceededError, StoreDamagedError, wrong_field
from tiercel.core.projects import (
    DEFAULT_PROJECT_BYTES,
    MAX_FOLDER_BYTES,
    PIECE_BYTES,
    Entry,
    Kind,
    refuse_project,
    walk,
)

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tiercel.core.blobs import BlobReceiver

DEFAULT_TENANT_BYTES = 16 * 1024**3
# What nobody refers to may belong to a job that is just being submitted.
UNUSED_SECONDS = 3600.0
# Of a project that was taken in already: what may be sent now is asked no more.
_ANY_BYTES = 2**62


class ProjectStore:
    """Keeps projects of tenants in a folder. Tenants' names are plain: the broker's own settings made them.

    Args:
        folder: Where the objects are; made when missing.
        project_bytes: What the files of one project may have together.
        tenant_bytes: What all of a tenant's may have.
        room: The disk's, where others share it.
    """

    def __init__(
        self,
        folder: Path,
        project_bytes: int = DEFAULT_PROJECT_BYTES,
        tenant_bytes: int = DEFAULT_TENANT_BYTES,
        room: DiskRoom | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for each in folder.iterdir():
            BlobFolder(each).remove_unfinished()
        self.project_bytes = project_bytes
        self._folder = folder
        self._tenant_bytes = tenant_bytes
        self._room = room or DiskRoom(folder)

    def missing(self, tenant: str, names: Sequence[str]) -> list[str]:
        """Those of the objects that the tenant has not sent.

        Raises:
            InvalidSpecError: One of them is no SHA-256.
        """
        for name in names:
            if not is_sha256(name):
                raise wrong_field("objects", f"{name[:80]!r} is not a SHA-256 in hexadecimal")
        return self._blobs(tenant).missing(names)

    def receive(self, tenant: str) -> AbstractContextManager[ProjectReceiver]:
        """Take in objects of a tenant; what is not whole at the end is not kept. Blocks while the disk works."""
        return self._receive(tenant, self._tenant_bytes - self._blobs(tenant).used_bytes())

    @contextlib.contextmanager
    def _receive(self, tenant: str, left_bytes: int) -> Iterator[ProjectReceiver]:
        with self._blobs(tenant).receive() as blob_receiver:
            receiver = ProjectReceiver(self._folder, blob_receiver, left_bytes, tenant, self._room)
            try:
                yield receiver
            finally:
                receiver.expected_bytes = 0

    def check(self, tenant: str, root: str) -> dict[str, Entry]:
        """Check that a project is here as a whole; returns what is in it, by path.

        Raises:
            InvalidSpecError: It is not here, is no project, or is larger than a project may be.
        """
        blobs = self._blobs(tenant)
        found = dict(self._walk(tenant, root, self.project_bytes))
        for path, entry in found.items():
            if entry.kind is not Kind.LINK and blobs.size(entry.content) != entry.size_bytes:
                raise refuse_project(f"{path!r} of it was not sent as it is listed; submit the folder again")
        # Whoever looks just now for what nobody needs does not know of this job yet.
        blobs.note_used([root, *(entry.content for entry in found.values() if entry.kind is not Kind.LINK)])
        return found

    def pieces(self, tenant: str, names: Iterable[str]) -> Iterator[tuple[str, int, bytes]]:
        """Objects in pieces of up to 1 MiB: name, size of the whole, and what comes next.

        Raises:
            NotFoundError: One of them is not here.
        """
        blobs = self._blobs(tenant)
        for name in names:
            size = blobs.size(name) if is_sha256(name) else None
            if size is None:
                raise NotFoundError(
                    f"sha256: there is no object {name[:80]!r}; submit the project again", field="sha256"
                )
            with blobs.path(name).open("rb") as file:
                yield name, size, file.read(PIECE_BYTES)
                while piece := file.read(PIECE_BYTES):
                    yield name, size, piece

    def pack(self, tenant: str, root: str, target: BinaryIO) -> None:
        """Write a project into a file as one archive, the same bytes each time; blocks while the disk works.

        Raises:
            InvalidSpecError: It is not here as a whole.
        """
        found = [entry.content for _, entry in self._walk(tenant, root, _ANY_BYTES) if entry.kind is not Kind.LINK]
        blobs = self._blobs(tenant)
        with tarfile.open(fileobj=target, mode="w") as archive:
            # What leads to others comes after them, as it is kept in this order.
            for name in reversed(dict.fromkeys([root, *found])):
                member = tarfile.TarInfo(name)
                member.size = blobs.size(name) or 0
                try:
                    with blobs.path(name).open("rb") as file:
                        archive.addfile(member, file)
                except FileNotFoundError:
                    raise refuse_project(f"the object {name} of it is not here; submit the folder again") from None

    def unpack(self, tenant: str, source: BinaryIO) -> None:
        """Take in what :meth:`pack` has written, however much a tenant may have; blocks while the disk works.

        Raises:
            StoreDamagedError: It is something else; nothing of it is kept but what is right.
            CannotWriteError: The disk is full.
        """
        try:
            with tarfile.open(fileobj=source, mode="r:") as archive, self._receive(tenant, _ANY_BYTES) as receiver:
                for member in archive:
                    content = archive.extractfile(member) if member.isfile() else None
                    if content is None:
                        raise StoreDamagedError(f"{member.name[:80]!r} in it is no object of a project")
                    receiver.write(member.name, member.size, content.read(PIECE_BYTES))
                    while piece := content.read(PIECE_BYTES):
                        receiver.write(member.name, member.size, piece)
                receiver.finish()
        except (tarfile.TarError, InvalidSpecError) as error:
            raise StoreDamagedError(f"it is no packed project ({error})") from error

    def tenants(self) -> list[str]:
        """Those who have sent something."""
        return sorted(path.name for path in self._folder.iterdir())

    def unused(self, tenant: str, roots: Iterable[str], unused_seconds: float = UNUSED_SECONDS) -> dict[str, int]:
        """The objects of a tenant that no project needs, each with its bytes; blocks while the disk works.

        Args:
            tenant: Whose.
            roots: The projects that are needed.
            unused_seconds: How long an object must have been here, or not been submitted, at least.
        """
        return self._blobs(tenant).unused(self._objects_of(tenant, roots), unused_seconds)

    def remove(self, tenant: str, names: Iterable[str], roots: Iterable[str]) -> None:
        """Remove objects of a tenant but for those that these projects need; blocks while the disk works."""
        kept, blobs = self._objects_of(tenant, roots), self._blobs(tenant)
        for name in names:
            if name not in kept:
                blobs.path(name).unlink(missing_ok=True)

    def _walk(self, tenant: str, root: str, limit_bytes: int) -> Iterator[tuple[str, Entry]]:
        blobs = self._blobs(tenant)

        def read(name: str) -> bytes:
            try:
                return blobs.read(name, MAX_FOLDER_BYTES + 1)
            except FileNotFoundError:
                raise refuse_project(f"the object {name} of it is not here; submit the folder again") from None

        return walk(root, read, limit_bytes=limit_bytes)

    def _objects_of(self, tenant: str, roots: Iterable[str]) -> set[str]:
        """All that belongs to some projects, however large a project may be now."""
        found: set[str] = set()
        for root in roots:
            found.add(root)
            # Of one that is not whole, what there is stays.
            with contextlib.suppress(InvalidSpecError):
                found.update(entry.content for _, entry in self._walk(tenant, root, _ANY_BYTES))
        return found

    def used_bytes(self, tenant: str) -> int:
        """What a tenant's objects have together."""
        return self._blobs(tenant).used_bytes()

    def _blobs(self, tenant: str) -> BlobFolder:
        return BlobFolder(self._folder / tenant)


class ProjectReceiver:
    """Takes in objects of one tenant; see :meth:`ProjectStore.receive`.

    Args:
        left_bytes: What the tenant may still have.
        room: The disk's.

    Attributes:
        expected_bytes: What will be written of the object that comes, see :class:`.DiskRoom`.
    """

    def __init__(self, place: Path, receiver: BlobReceiver, left_bytes: int, tenant: str, room: DiskRoom) -> None:
        self._place = place
        self._receiver = receiver
        self._left_bytes = left_bytes
        self._tenant = tenant
        self._room = room
        self.expected_bytes = 0

    def write(self, name: str, size_bytes: int, data: bytes) -> None:
        """Take in the next piece of an object; blocks while the disk works.

        Raises:
            InvalidSpecError: It is not what was announced.
            QuotaExceededError: The tenant has no more room.
            CannotWriteError: The disk is full.
        """
        is_next = self._receiver.is_between_files
        if is_next:
            self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            raise QuotaExceededError(
                f"tenant {self._tenant} has no more room for projects; ask the broker's operator to remove old ones"
            )
        if is_next:
            self._room.begin(size_bytes, lambda: self._expecting(size_bytes))
        with taking_in(self._place, "objects"):
            self._receiver.write(name, size_bytes, data)
        self.expected_bytes -= len(data)

    def _expecting(self, size_bytes: int) -> Self:
        self.expected_bytes = size_bytes
        return self

    def finish(self) -> None:
        """Keep for good what has arrived; raises as :meth:`write` does."""
        with taking_in(self._place, "objects"):
            self._receiver.finish()
