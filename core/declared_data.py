"""What the operator of a node offers as data: one small file in the agent's state directory.

The command writes it, under a lock; the agent reads it again when it changed. It never tells anybody its paths.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tiercel.core.data_sets import MAX_NAME_CHARACTERS, MAX_OF_A_NODE, is_data_name
from tiercel.core.errors import InvalidSpecError, UnavailableError, wrong_field
from tiercel.core.locks import LockHeldError, take

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILE = "data.json"

_LOCK = "data.lock"
_LOCK_SECONDS = 5.0
_LOOK_AGAIN_SECONDS = 0.02
_MAX_FILE_BYTES = 1024 * 1024
_MAX_PATH_BYTES = 4096
_MAX_COUNTED = 200_000
_BLOCK_BYTES = 512  # what st_blocks counts


@dataclass(frozen=True, slots=True)
class DeclaredData:
    """A data set on a node."""

    name: str  # jobs ask for it by this
    path: Path  # the file or folder, with no links left in it
    # What it had on the disk when it was declared, or None where it has too many files to be counted.
    size_bytes: int | None = None

    @property
    def is_there(self) -> bool:
        """Whether the path still leads to what was declared; blocks while the disk works."""
        try:
            return os.path.realpath(self.path, strict=True) == os.fspath(self.path)
        except OSError:
            return False


class DataDeclarations:
    """The data sets that an operator declared for a node."""

    def __init__(self, agent_dir: Path) -> None:
        self._folder = agent_dir
        self._file = agent_dir / FILE

    def read(self) -> dict[str, DeclaredData]:
        """Those that are declared, by name.

        Raises:
            UnavailableError: The file cannot be read, or is something else; says what to do.
        """
        try:
            with self._file.open("rb") as file:
                text = file.read(_MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._refuse(error.strerror or str(error)) from error
        try:
            found = {name: _declared(name, written) for name, written in json.loads(text)["data"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._refuse("it is something else") from error
        if len(text) > _MAX_FILE_BYTES or len(found) > MAX_OF_A_NODE:
            raise self._refuse("it is too large")
        return dict(sorted(found.items()))

    def add(self, name: str, path: Path) -> DeclaredData:
        """Declare a data set; blocks while its files are counted.

        Args:
            name: Jobs ask for it by this.
            path: The file or folder; links in it are followed now, and not later.

        Raises:
            InvalidSpecError: One of the two cannot be, or there are too many; says what to do.
            UnavailableError: What was declared before cannot be read or written.
        """
        if not is_data_name(name):
            raise wrong_field(
                "name",
                f"{name!r} is not a data set's name; use 1 to {MAX_NAME_CHARACTERS} of a-z, 0-9 and '-', "
                "beginning with a letter or digit",
            )
        resolved = self._resolved(path)
        added = DeclaredData(name, resolved, _size_of(resolved))
        with self._locked():
            known = self.read()
            if name not in known and len(known) >= MAX_OF_A_NODE:
                raise wrong_field(
                    "name", f"this node offers {len(known)} data sets, and more are not taken; remove one first"
                )
            self._write({**known, name: added})
        return added

    def remove(self, name: str) -> None:
        """Offer a data set no more; its files stay, and so do the runs that read them.

        Raises:
            InvalidSpecError: There is none of this name.
            UnavailableError: What was declared before cannot be read or written.
        """
        with self._locked():
            known = self.read()
            if name not in known:
                there = f"there are {', '.join(known)}" if known else "there is none"
                raise wrong_field("name", f"this node offers no data set {name!r}; {there}")
            del known[name]
            self._write(known)

    def _resolved(self, path: Path) -> Path:
        try:
            resolved = Path(os.path.realpath(path, strict=True))
            mode = resolved.stat().st_mode
        except OSError as error:
            raise _refuse_path(path, f"cannot be used ({error.strerror})") from error
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise _refuse_path(path, "is neither a file nor a folder")
        if len(os.fsencode(resolved)) > _MAX_PATH_BYTES or not str(resolved).isprintable():
            raise _refuse_path(path, "leads to a path that is too long, or has characters that cannot be printed")
        own = Path(os.path.realpath(self._folder))
        if own.is_relative_to(resolved) or resolved.is_relative_to(own):
            raise _refuse_path(path, f"would let jobs read the agent's own files, which lie in {own}")
        return resolved

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """While nobody else changes the file."""
        deadline = time.monotonic() + _LOCK_SECONDS
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            while True:
                try:
                    lock = take(self._folder / _LOCK)
                    break
                except LockHeldError as error:
                    if time.monotonic() > deadline:
                        raise self._refuse(f"process {error.pid or 'unknown'} is changing it") from None
                    time.sleep(_LOOK_AGAIN_SECONDS)  # a lock file of another process, which tells nobody
        except OSError as error:
            raise self._refuse(error.strerror or str(error)) from error
        with lock:
            yield

    def _write(self, declared: Mapping[str, DeclaredData]) -> None:
        content = {
            name: {"path": str(each.path), "size_bytes": each.size_bytes} for name, each in sorted(declared.items())
        }
        temporary = self._file.with_name(f".{FILE}.tmp")  # one at a time, since we hold the lock
        try:
            with temporary.open("w", encoding="utf-8") as file:
                json.dump({"data": content}, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._file)
        except OSError as error:
            raise self._refuse(error.strerror or str(error)) from error

    def _refuse(self, cause: str) -> UnavailableError:
        return UnavailableError(
            f"{self._file}, which has the data sets of this node, cannot be used: {cause}; give the folder of an agent "
            "that is yours, or remove the file and add them again"
        )


def _declared(name: str, written: Mapping[str, object]) -> DeclaredData:
    path, size = written["path"], written.get("size_bytes")
    is_fine = is_data_name(name) and isinstance(path, str) and path.startswith("/")
    if not is_fine or not (size is None or (isinstance(size, int) and size >= 0)):
        raise ValueError(name)
    return DeclaredData(name, Path(str(path)), size if isinstance(size, int) else None)


def _refuse_path(path: Path, what: str) -> InvalidSpecError:
    return wrong_field("path", f"{path} {what}; give a file or folder that jobs may read")


def _size_of(path: Path) -> int | None:
    """What it has on the disk, as far as it can be seen; None for more files than are worth counting."""
    if path.is_file():
        return path.stat().st_blocks * _BLOCK_BYTES
    size = counted = 0
    folders = deque([os.fspath(path)])
    while folders:
        with suppress(OSError), os.scandir(folders.popleft()) as entries:
            for entry in entries:
                counted += 1
                if counted > _MAX_COUNTED:
                    return None
                with suppress(OSError):
                    size += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
    return size
