"""A model's file as one copy in memory that nobody can change: what was verified is what is loaded. Blocks."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
from pathlib import Path

from tiercel.core.errors import ArtefactRefusedError, UnavailableError
from tiercel.core.model_files import MODEL_FILE

# linux/fcntl.h. Nobody has mapped it for writing when it is sealed, so this seals as much as F_SEAL_WRITE does, which
# would wait until no part of the kernel looks at any of its pages, and fail with EBUSY on a busy machine.
_F_SEAL_FUTURE_WRITE = 0x0010
_PIECE = 1024**2
_COPIED_BYTES = 64 * _PIECE
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
            f"{path.name} has {status.st_size} bytes; it must be a plain file of 1 to {max(0, max_bytes)} bytes"
        )
    return descriptor, status.st_size


class SealedFile:
    """A file in memory whose content is final, also for those who have it open for writing.

    The kernel copies it there, so neither Python's lock nor this process's heap has a part in it, and it needs no
    checksum between those who read it.

    A model with weights beside its file has them in a folder of this server's own, with its file once more: what maps
    them goes on when the folder is gone.

    Args:
        descriptor: A memfd with all seals; closed by :meth:`close`.
    """

    __slots__ = ("data_bytes", "descriptor", "folder")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.folder: Path | None = None  # where it lies with its weights, if those are beside it; removed with it
        self.data_bytes = 0  # what these have

    @property
    def path(self) -> str:
        """Where it can be read as long as it is open; by other processes too, if it has a folder."""
        return f"/proc/self/fd/{self.descriptor}" if self.folder is None else str(self.folder / MODEL_FILE)

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
        folder, self.folder = self.folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

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


def add_data(copy: SealedFile, data: Path, folder: Path, max_bytes: int) -> None:
    """Copy the weights beside a model to a folder of this server's own, together with the model. Blocks.

    The disk has them twice while they are loaded and where they are mapped, unless its file system shares what is
    alike. So whatever somebody does to the file, nobody has its pages taken away under a model that answers.

    Args:
        copy: The model.
        data: The file with its weights.
        folder: The folder, empty; it goes with the copy, or at once when this fails.
        max_bytes: What the model may have with its weights.

    Raises:
        ArtefactRefusedError: It is no plain file, empty, or too large.
        UnavailableError: There is no room for it.
    """
    try:
        model_bytes = os.fstat(copy.descriptor).st_size + os.lstat(data).st_size
        if model_bytes > max_bytes:
            raise ArtefactRefusedError(
                f"the model has {model_bytes} bytes with its weights, and this server takes {max_bytes}: "
                "max_model_bytes says how many"
            )
        source, size = open_artefact(data, max_bytes)
        try:
            copy.folder, copy.data_bytes = folder, size
            _copy(source, folder / data.name, size)
            _copy(copy.descriptor, folder / MODEL_FILE, os.fstat(copy.descriptor).st_size)
        finally:
            os.close(source)
    except OSError as error:
        raise UnavailableError(f"{data.name} cannot be copied to {folder}: {error.strerror}; make room") from error
    finally:
        if copy.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


def _copy(source: int, target: Path, size: int) -> None:
    """Copy a file, or let the file system share it where it can."""
    copy = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
    try:
        at = 0
        while at < size:
            try:
                copied = os.copy_file_range(source, copy, min(size - at, _COPIED_BYTES), at, at)
            except OSError as error:
                if error.errno not in {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}:
                    raise
                copied = os.pwrite(copy, os.pread(source, min(size - at, _PIECE), at), at)
            if not copied:
                raise ArtefactRefusedError(f"{target.name} has become shorter while it was read")
            at += copied
    finally:
        os.close(copy)


def content_of(descriptor: int, size: int) -> bytes:
    """The first ``size`` bytes of a file, or fewer if it has become shorter, wherever its position is."""
    parts: list[bytes] = []
    offset = 0
    while offset < size and (part := os.pread(descriptor, size - offset, offset)):
        parts.append(part)
        offset += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
