"""Data of object stores, by the libraries that fsspec knows, and of folders of the node that its operator opened.

fsspec lists and copies, no more: its own caches hand out files that are not complete.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from tiercel.trainer_agent.data.sources import file_name
from tiercel.trainer_agent.data.transfer import PIECE_BYTES, FetchError, Found, Progress, Sink

MAX_FILES: Final = 100_000
_MAX_DEPTH: Final = 64
_LIBRARIES: Final = {"s3": "s3fs", "gs": "gcsfs", "hf": "huggingface_hub"}
# One connection a file, read piece by piece: it goes on where it broke off, and says all the time that it is alive.
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "s3": {"max_concurrency": 1, "config_kwargs": {"retries": {"max_attempts": 1}}}  # who asked tries again as well
}
_ANONYMOUS: Final[dict[str, dict[str, Any]]] = {"s3": {"anon": True}, "gs": {"token": "anon"}, "hf": {"token": False}}
_CLOSED: Final = frozenset({401, 403})
_NO_CREDENTIALS: Final = frozenset(
    {
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "DefaultCredentialsError",
        "RefreshError",
    }
)


@dataclass(frozen=True, slots=True)
class Listed:
    """A file to copy."""

    path: str  # in the folder that is copied; empty where it is all
    place: str  # where it is, as its store calls it
    size: int  # in bytes
    version: str  # equal for as long as it is the same


def found_of(url: str, listed: list[Listed]) -> Found:
    """What there is, from its files."""
    digest = hashlib.sha256()
    for each in sorted(listed, key=lambda each: each.path):
        digest.update(f"{each.path}\0{each.size}\0{each.version}\n".encode(errors="surrogateescape"))
    is_file = len(listed) == 1 and not listed[0].path
    return Found(digest.hexdigest(), sum(each.size for each in listed), file_name(url) if is_file else "")


class Store:
    """A file or folder of an object store.

    Args:
        is_trusted: Whether the node's credentials are used.
    """

    def __init__(self, url: str, *, is_trusted: bool) -> None:
        self._is_trusted = is_trusted
        self._files, self._path = _store_of(url, is_trusted=is_trusted)

    def listed(self) -> list[Listed]:
        """Its files.

        Raises:
            FetchError: It cannot be had, or has too many.
        """
        try:
            self._files.invalidate_cache()  # else a new file is not seen
            info = self._files.info(self._path)
            if info["type"] == "file":
                return [self._entry("", info)]
            return list(self._below(self._path))
        except FetchError:
            raise
        except Exception as error:  # of libraries of which nobody says what they raise
            raise self._failure(error) from error

    def copy(self, file: Listed, target: Path, progress: Progress) -> str:
        """Copy a file; returns its SHA-256.

        Raises:
            FetchError: It did not come, or not as it was listed.
        """
        from fsspec.callbacks import Callback

        before = progress.size

        class Counted(Callback):  # type: ignore[misc]  # it has no types
            def relative_update(self, inc: int = 1) -> None:
                progress.add(inc)

            def absolute_update(self, value: int) -> None:
                progress.add(max(0, value - (progress.size - before)))

        try:
            self._files.get_file(file.place, os.fspath(target), callback=Counted())
        except FetchError:
            raise
        except Exception as error:
            raise self._failure(error) from error
        return _hashed(target, file, progress, before)

    def _below(self, folder: str) -> Iterator[Listed]:
        # An object "folder/" is no file: it is there where somebody made the folder before its files.
        found = {
            name: info
            for name, info in self._files.find(folder, detail=True).items()
            if info["size"] or not name.endswith("/")
        }
        if not found:
            raise FetchError("there is nothing in it")
        if len(found) > MAX_FILES:
            raise FetchError(f"it has more than {MAX_FILES} files; pack them")
        for name, info in found.items():
            yield self._entry(_inside(name, folder), info)

    def _failure(self, error: Exception) -> FetchError:
        """What went wrong, in words for who asked."""
        if isinstance(error, FileNotFoundError):
            return FetchError("there is no such file or folder")
        if isinstance(error, MemoryError):
            return FetchError(f"its list of files is too long for the node; at most {MAX_FILES} are taken, pack them")
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return FetchError("the disk of the node is full", again=True)
        # huggingface_hub's and gcsfs's; s3fs raises PermissionError
        status = getattr(getattr(error, "response", None), "status_code", getattr(error, "code", None))
        if isinstance(error, PermissionError) or status in _CLOSED or type(error).__name__ in _NO_CREDENTIALS:
            if self._is_trusted:
                return FetchError("the node's credentials do not open it, or it has none; its operator can mend that")
            return FetchError(
                "it is not open to everybody; the node's operator may let its own credentials be used (--data-sources)"
            )
        words = str(error).strip().partition("\n")[0]
        return FetchError(f"its store answers {type(error).__name__}: {words}", again=True)

    def _entry(self, path: str, info: dict[str, Any]) -> Listed:
        version = next((str(info[key]) for key in ("ETag", "etag", "blob_id", "sha256") if info.get(key)), "")
        return Listed(path, info["name"], int(info["size"] or 0), version or str(self._files.ukey(info["name"])))


class OpenedFolder:
    """A file or folder of the node, below one that its operator opened to everybody's jobs."""

    def __init__(self, url: str, trusted: str) -> None:
        self._path = Path(unquote(urlsplit(url).path))
        self._root = Path(os.path.realpath(urlsplit(trusted).path))

    def listed(self) -> list[Listed]:
        """Its files; links in it are left out.

        Raises:
            FetchError: It cannot be read, or has too many.
        """
        try:
            path = Path(os.path.realpath(self._path, strict=True))
            if not path.is_relative_to(self._root):
                raise FetchError("it leads out of the folder that the node's operator has opened")
            if path.is_file():
                return [_entry_of(path, "")]
            found = [
                _entry_of(Path(folder, name), os.path.relpath(Path(folder, name), path))
                for folder, _, names in os.walk(path)
                for name in names
                if stat.S_ISREG(Path(folder, name).lstat().st_mode)
            ]
        except OSError as error:
            raise FetchError(f"it cannot be read ({error.strerror})") from error
        if not 0 < len(found) <= MAX_FILES:
            raise FetchError(f"it has {len(found)} files, and 1 to {MAX_FILES} are taken")
        return found

    def copy(self, file: Listed, target: Path, progress: Progress) -> str:
        """Copy a file; returns its SHA-256.

        Raises:
            FetchError: It cannot be read, or is another one by now.
        """
        try:
            descriptor = os.open(file.place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as reader, Sink(target, progress) as sink:  # noqa: PTH123 - a descriptor
                # By what was really opened: a folder on the way may have become a link.
                if not Path(f"/proc/self/fd/{descriptor}").readlink().is_relative_to(self._root):
                    raise FetchError("it leads out of the folder that the node's operator has opened")
                left = file.size
                while left and (piece := reader.read(min(PIECE_BYTES, left))):
                    left -= len(piece)
                    sink.write(piece)
                if _version_of(os.fstat(descriptor)) != file.version:
                    raise FetchError("it changed while it was read", again=True)
        except OSError as error:
            if target.parent.exists() and error.filename != file.place:
                raise  # ours, such as a full disk
            raise FetchError(f"it cannot be read ({error.strerror})") from error
        return sink.sha256


def _store_of(url: str, *, is_trusted: bool) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    scheme = urlsplit(url).scheme
    try:
        files, path = url_to_fs(url, **_OPTIONS.get(scheme, {}), **({} if is_trusted else _ANONYMOUS[scheme]))
    except ImportError as error:
        library = _LIBRARIES[scheme]
        raise FetchError(
            f"the node lacks the library for {scheme}: URLs; its operator can install it: pip install {library}"
        ) from error
    return files, path


def _inside(name: str, folder: str) -> str:
    """The path of a file in a folder, if it stays in there."""
    path = name.removeprefix(f"{folder}/")
    parts = path.split("/")
    is_below = name.startswith(f"{folder}/") and len(parts) <= _MAX_DEPTH
    if not is_below or any(part in {"", ".", ".."} or "\0" in part or len(part) > 255 for part in parts):
        raise FetchError(f"it has a file whose path is none: {path[:100]!r}")
    return path


def _entry_of(path: Path, inside: str) -> Listed:
    status = path.lstat()
    return Listed(inside, os.fspath(path), status.st_size, _version_of(status))


def _version_of(status: os.stat_result) -> str:
    return f"{status.st_ino} {status.st_mtime_ns} {status.st_size}"


def _hashed(target: Path, file: Listed, progress: Progress, before: int) -> str:
    """Make what was written by somebody else what a :class:`Sink` leaves."""
    digest = hashlib.sha256()
    size = 0
    with target.open("rb") as reader:
        while piece := reader.read(PIECE_BYTES):
            digest.update(piece)
            size += len(piece)
            progress.tell_alive()
        os.fsync(reader.fileno())
    if size != file.size:
        raise FetchError(f"{size} bytes came of {file.size}", again=True)
    target.chmod(0o444)
    progress.size = before
    progress.add(size)  # not every library says all of it
    return digest.hexdigest()
