"""Files that survive a crash, and files that somebody hostile may have prepared."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

_CHUNK_BYTES: Final = 1 << 20
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
_UNTRUSTED_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class UntrustedFileError(Exception):
    """A file is not what it should be; the message says so in plain words."""


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file so that a crash leaves either the old or the new one; only its owner may read it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make renames inside a folder durable."""
    descriptor = os.open(path, _FOLDER)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def open_folder(name: str | Path, inside: int | None = None) -> Iterator[int]:
    """A descriptor of a real folder, never of what a link points to.

    Args:
        name: A path, or a name in the folder ``inside``.
        inside: Descriptor of the folder that has it.

    Raises:
        OSError: It is missing, or is a link or something else.
    """
    descriptor = os.open(name, _FOLDER, dir_fd=inside)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def remove_anything(name: str, inside: int) -> None:
    """Remove whatever has a name in a folder, without following links; nothing there is fine."""
    try:
        is_folder = stat.S_ISDIR(os.stat(name, dir_fd=inside, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return
    if is_folder:
        remove_folder(name, inside)
    else:
        os.unlink(name, dir_fd=inside)


def remove_folder(name: str, inside: int) -> None:
    """Remove a folder however deep it is, and whatever in it was closed to the very user that has to remove it.

    Raises:
        OSError: It is missing, or cannot be removed.
    """
    # Folders in it are moved up before they are looked into, so that no path gets long and nothing calls itself.
    moved, left, count = f"{name}.{secrets.token_hex(4)}", [name], 0
    while left:
        name = left.pop()
        with open_folder(name, inside) as folder:
            os.fchmod(folder, 0o700)
            with os.scandir(folder) as entries:
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.name, dir_fd=folder)
                        continue
                    count += 1
                    os.chmod(entry.name, 0o700, dir_fd=folder)
                    os.rename(entry.name, f"{moved}.{count}", src_dir_fd=folder, dst_dir_fd=inside)
                    left.append(f"{moved}.{count}")
        os.rmdir(name, dir_fd=inside)


def write_new(name: str, data: bytes, *, inside: int, mode: int, owner: tuple[int, int] | None) -> None:
    """Write a file that must not exist yet into a folder that others may write to.

    Args:
        name: Its name.
        data: Its content.
        inside: Descriptor of the folder.
        mode: Permissions.
        owner: User and group id to give it to, or None.
    """
    descriptor = os.open(name, _NEW_FILE, mode, dir_fd=inside)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
        if owner is not None:
            os.fchown(descriptor, *owner)
        os.fchmod(descriptor, mode)
        file.write(data)


def copy_new(source: Path, name: str, *, inside: int, mode: int, owner: tuple[int, int] | None) -> None:
    """Copy a file of ours into a folder that others may write to, under a name that must not exist there yet.

    Blocks for as long as copying takes: call it on a thread.
    """
    descriptor = os.open(name, _NEW_FILE, mode, dir_fd=inside)
    with open(descriptor, "wb") as writer, source.open("rb") as reader:  # noqa: PTH123 - a descriptor, not a path
        if owner is not None:
            os.fchown(descriptor, *owner)
        os.fchmod(descriptor, mode)
        shutil.copyfileobj(reader, writer, _CHUNK_BYTES)
        writer.flush()
        os.fsync(descriptor)


def _open_regular(name: str, inside: int) -> BinaryIO:
    try:
        descriptor = os.open(name, _UNTRUSTED_FILE, dir_fd=inside)
    except OSError as error:
        raise UntrustedFileError(f"{name} cannot be opened as a regular file ({error.strerror})") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UntrustedFileError(f"{name} is not a regular file")
    return os.fdopen(descriptor, "rb")


def copy_untrusted(name: str, *, inside: int, target: Path, limit_bytes: int, durable: bool = True) -> str:
    """Copy a file that somebody hostile may have made, and hash what was copied.

    Blocks for as long as copying takes: call it on a thread.

    Args:
        name: Its name.
        inside: Descriptor of its folder.
        target: Where the copy goes; must not exist.
        limit_bytes: The largest size that is accepted.
        durable: Whether the copy has to survive a crash.

    Returns:
        SHA-256 of the copy, hexadecimal.

    Raises:
        UntrustedFileError: It is missing, is not a regular file, or is too large.
    """
    with _open_regular(name, inside) as reader:
        digest = hashlib.sha256()
        left = limit_bytes
        with target.open("xb") as writer:
            while chunk := reader.read(_CHUNK_BYTES):
                left -= len(chunk)
                if left < 0:
                    raise UntrustedFileError(f"{name} is larger than {limit_bytes} bytes")
                digest.update(chunk)
                writer.write(chunk)
            writer.flush()
            if durable:
                os.fsync(writer.fileno())
    return digest.hexdigest()


def read_untrusted(name: str, *, inside: int, limit_bytes: int) -> bytes:
    """The content of a small file that somebody hostile may have made.

    Raises:
        UntrustedFileError: It is missing, is not a regular file, or is too large.
    """
    with _open_regular(name, inside) as reader:
        content = reader.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise UntrustedFileError(f"{name} is larger than {limit_bytes} bytes")
    return content
