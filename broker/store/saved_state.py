"""What is saved of a broker, in a file and in an artefact store, and how a state directory is made of it.

What comes back is believed no further than it was checked: names are those that a broker has, sizes are bounded, and a
database is a whole one.
"""

from __future__ import annotations

import contextlib
import os
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tiercel.broker.store.artefacts.databases import databases_in
from tiercel.broker.store.backups import check_database, copy_database
from tiercel.broker.store.disk_room import DiskRoom
from tiercel.broker.store.projects import ProjectStore
from tiercel.broker.store.stored_projects import stored_projects_in
from tiercel.core.errors import NotFoundError, StoreDamagedError, wrong_field
from tiercel.core.tasks import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

    from tiercel.broker.store.artefacts.contract import Artefacts
    from tiercel.broker.store.artefacts.databases import DatabaseCopy

DATABASE: Final = "broker.sqlite"
KEY_FILES: Final = ("tenants.toml", "secrets.key", "operator.token", "node.token", "authority.key", "authority.pem")
_MAX_KEY_BYTES: Final = 16 * 1024**2
_MARK_SECONDS: Final = 30.0
# Of an artefact store: slower than this it is given up.
_BYTES_PER_SECOND: Final = 256 * 1024


def save(state_dir: Path, file: Path) -> tuple[str, ...]:
    """Copy database and keys of a broker, which may run, into a file that does not exist yet; returns their names.

    Args:
        state_dir: The broker's.
        file: A tar archive, which only its owner may read.

    Raises:
        InvalidSpecError: There is no broker's database, or the file exists.
        sqlite3.Error: The database cannot be copied.
        OSError: The file cannot be written.
    """
    if not (state_dir / DATABASE).is_file():
        raise wrong_field("state_dir", f"{state_dir} has no {DATABASE}; name the broker's with --state-dir")
    with _new_file(file) as target, tempfile.TemporaryDirectory(dir=state_dir) as scratch:
        copy = Path(scratch) / DATABASE
        copy_database(state_dir / DATABASE, copy)
        found = {DATABASE: copy} | {name: state_dir / name for name in KEY_FILES if (state_dir / name).is_file()}
        with tarfile.open(fileobj=target, mode="w") as archive:
            for name, path in found.items():
                archive.add(path, name, recursive=False)
    return tuple(found)


def take_from_file(file: Path, state_dir: Path, *, with_database: bool) -> tuple[str, ...]:
    """Put into a state directory what :func:`save` has written; returns the names.

    Args:
        file: The archive.
        state_dir: The directory.
        with_database: Whether its database is taken as well.

    Raises:
        StoreDamagedError: It is not what that writes; nothing of it is left.
        InvalidSpecError: One of the files is there already.
        OSError: The file cannot be read, or the directory not written.
    """
    found: list[str] = []
    try:
        with file.open("rb") as source, tarfile.open(fileobj=source, mode="r:") as archive:
            for member in archive:
                _check_member(member, found)
                if with_database or member.name != DATABASE:
                    with _new_file(state_dir / member.name) as target:
                        found.append(member.name)
                        _copy(archive, member, target)
        if DATABASE in found:
            check_database(state_dir / DATABASE)
    except tarfile.TarError as error:
        remove(state_dir, found)
        raise StoreDamagedError(f"{file} is no file that 'tiercel backup' wrote ({error})") from error
    except BaseException:
        remove(state_dir, found)
        raise
    return tuple(found)


async def take_from_store(artefacts: Artefacts, state_dir: Path) -> DatabaseCopy:
    """Put the newest copy of the database that an artefact store has whole into a state directory, in place of any.

    Raises:
        NotFoundError: It has none.
        StoreDamagedError: None that it has is whole.
        UnavailableError: The store does not answer, or refuses.
        OSError: The directory cannot be written.
    """
    copies = await databases_in(artefacts, _MARK_SECONDS)
    if not copies:
        raise NotFoundError(f"the artefact store {artefacts.where} has no copy of a broker's database")
    problems: list[str] = []
    for copy in copies:
        scratch = state_dir / f"{DATABASE}.part"
        scratch.unlink(missing_ok=True)
        try:
            await artefacts.get(copy.artefact, scratch, _MARK_SECONDS + copy.size_bytes / _BYTES_PER_SECOND)
            check_database(scratch)
        except (NotFoundError, StoreDamagedError) as error:
            problems.append(error.message)
            continue
        else:
            scratch.chmod(0o600)
            scratch.replace(state_dir / DATABASE)
            return copy
        finally:
            scratch.unlink(missing_ok=True)
    raise StoreDamagedError(f"no copy of the database can be used: {'; '.join(problems)}")


async def take_projects(artefacts: Artefacts, state_dir: Path) -> tuple[int, list[str]]:
    """Put the projects that a state directory's database says an artefact store has into the directory.

    Returns:
        How many came back, and a sentence for each that did not.

    Raises:
        UnavailableError: The store does not answer, or refuses.
        CannotWriteError: The disk has no room for them.
        OSError: The directory cannot be written.
    """
    room = DiskRoom(state_dir)
    projects = ProjectStore(state_dir / "projects", room=room)
    problems: list[str] = []
    stored = stored_projects_in(state_dir / DATABASE)
    for (tenant, root), artefact in stored.items():
        with tempfile.TemporaryDirectory(dir=state_dir) as scratch:
            place = Path(scratch) / "project"
            try:
                with room.growing(place, artefact.size_bytes):
                    await artefacts.get(artefact, place, _MARK_SECONDS + artefact.size_bytes / _BYTES_PER_SECOND)
                with place.open("rb") as source:
                    await run_in_thread(projects.unpack, tenant, source)
            except (NotFoundError, StoreDamagedError) as error:
                problems.append(f"project {root} of tenant {tenant} did not come back: {error.message}")
    return len(stored) - len(problems), problems


def _check_member(member: tarfile.TarInfo, found: list[str]) -> None:
    if not member.isfile() or member.name not in {DATABASE, *KEY_FILES} or member.name in found:
        raise StoreDamagedError(f"what was saved has {member.name[:80]!r}, which no broker saves")
    if member.name != DATABASE and member.size > _MAX_KEY_BYTES:
        raise StoreDamagedError(f"what was saved as {member.name} is too large")


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise wrong_field("file", f"{path} exists; name another one, or remove it") from None
    with os.fdopen(descriptor, "wb") as file:
        try:
            yield file
            file.flush()
            os.fsync(descriptor)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _copy(archive: tarfile.TarFile, member: tarfile.TarInfo, target: BinaryIO) -> None:
    content = archive.extractfile(member)
    while content is not None and (piece := content.read(1024**2)):
        target.write(piece)


def remove(state_dir: Path, names: Iterable[str]) -> None:
    """Remove what was put into a state directory."""
    for name in names:
        (state_dir / name).unlink(missing_ok=True)
