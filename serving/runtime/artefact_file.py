"""A model's file as one copy in memory that nobody can change: what was verified is what is loaded. Blocks."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from pathlib import Path

from tiercel.core.errors import ArtefactRefusedError, UnavailableError

# linux/fcntl.h. Nobody has mapped it for writing when it is sealed, so this seals as much as F_SEAL_WRITE does, which
# would wait until no part of the kernel looks at any of its pages, and fail with EBUSY on a busy machine.
_F_SEAL_FUTURE_WRITE = 0x0010
_PIECE = 1024**2
_SEALS = _F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


def open_artefact(path: Path, max_bytes: int) -> tuple[int, int]:
    """Open a file of an artefact.

    Returns:
        A descriptor for reading, which the caller closes, and the file's bytes.

    Raises:
        ArtefactRefusedError: It is missing, no plain file, empty, or over ``max_bytes``.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ArtefactRefusedError(f"{path.name} cannot be read: {error.strerror}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= max_bytes:
        os.close(descriptor)
        raise ArtefactRefusedError(
            f"{path.name} has {status.st_size} bytes; it must be a plain file of 1 to {max_bytes} bytes"
        )
    return descriptor, status.st_size


class SealedFile:
    """A file in memory whose content is final, also for those who have it open for writing.

    The kernel copies it there, so neither Python's lock nor this process's heap has a part in it, and it needs no
    checksum between those who read it.

    Args:
        descriptor: A memfd with all seals; closed by :meth:`close`.
    """

    __slots__ = ("descriptor",)

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @property
    def path(self) -> str:
        """Where this process can read it, as long as it is open."""
        return f"/proc/self/fd/{self.descriptor}"

    def sha256(self) -> str:
        """Of its content, hexadecimal; in pieces, between which others may run Python."""
        digest = hashlib.sha256()
        offset = 0
        while part := os.pread(self.descriptor, _PIECE, offset):
            digest.update(part)
            offset += len(part)
        return digest.hexdigest()

    def close(self) -> None:
        """Let go of it; doing it twice is doing it once."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        """Whoever is broken off between the copy and its use cannot close it."""
        self.close()


def sealed_copy(path: Path, max_bytes: int) -> SealedFile:
    """Copy a model's file into memory and seal it.

    Raises:
        ArtefactRefusedError: It is missing, no plain file, empty, or over ``max_bytes``.
        UnavailableError: There is no room for it, or too many files are open.
    """
    source, size = open_artefact(path, max_bytes)
    try:
        copy = SealedFile(os.memfd_create("model", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
        copied = 0
        while copied < size and (more := os.sendfile(copy.descriptor, source, copied, size - copied)):
            copied += more
        fcntl.fcntl(copy.descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except OSError as error:
        raise UnavailableError(f"{path.name} cannot be copied to memory: {error.strerror}; try again later") from error
    finally:
        os.close(source)
    return copy


def content_of(descriptor: int, size: int) -> bytes:
    """The first ``size`` bytes of a file, or fewer if it has become shorter, wherever its position is."""
    parts: list[bytes] = []
    offset = 0
    while offset < size and (part := os.pread(descriptor, size - offset, offset)):
        parts.append(part)
        offset += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
