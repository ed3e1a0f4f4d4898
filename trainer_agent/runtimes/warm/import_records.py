"""What the runs of a tenant import: written down by a run's trainer, kept for the templates of runs to come."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tiercel.trainer_agent.disk.files import UntrustedFileError, open_folder, read_untrusted, write_atomically
from tiercel.trainer_agent.disk.job_folder import IMPORTS

_log = logging.getLogger(__name__)

_MOST_NAMES: Final = 512
_MOST_BYTES: Final = 64 * 1024
_MOST_RECORDS: Final = 256
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}(\.[A-Za-z_][A-Za-z0-9_]{0,63}){0,7}")
_LONGEST_REASON: Final = 200


@dataclass(frozen=True, slots=True)
class Key:
    """Whom something is for that has imported what runs import."""

    tenant: str  # the owner of the runs; nobody else's are started from it
    python: str  # the interpreter, by path
    # What tells containers apart in which it is that interpreter; empty for a process of the machine.
    container: str = ""

    @property
    def file_name(self) -> str:
        """Fit for a file's name."""
        parts = (self.tenant, self.python, self.container) if self.container else (self.tenant, self.python)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32] + ".json"


@dataclass(frozen=True, slots=True)
class ImportRecord:
    """What runs imported."""

    names: tuple[str, ...] = ()  # modules of installed packages, in the order of their import
    cpu_seconds: float = 0.0  # what a run had used by then, of the one that used most
    left_out: Mapping[str, str] = field(default_factory=dict)  # modules that a template cannot import, with the reason

    @property
    def to_import(self) -> list[str]:
        """What a template is to import."""
        return [name for name in self.names if not any(_is_within(name, lost) for lost in self.left_out)]

    def with_imports(self, names: Iterable[str], cpu_seconds: float) -> ImportRecord:
        """With what another run imported."""
        all_names = dict.fromkeys((*self.names, *names))
        return replace(self, names=tuple(all_names)[:_MOST_NAMES], cpu_seconds=max(self.cpu_seconds, cpu_seconds))

    def without(self, left_out: Mapping[str, str]) -> ImportRecord:
        """Without modules that a template could not import."""
        known = {
            name: str(reason)[:_LONGEST_REASON]  # as hostile as the module
            for name, reason in left_out.items()
            if any(_is_within(each, name) for each in self.names)
        }
        return replace(self, left_out={**self.left_out, **known})


class ImportRecords:
    """The records of a node: in memory, and on the disk as long as that takes them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[Key, ImportRecord] = {}

    def get(self, key: Key) -> ImportRecord:
        """The record of a key, empty where there is none."""
        if key not in self._known:
            self._known[key] = self._read(key)
        return self._known[key]

    def put(self, key: Key, record: ImportRecord) -> None:
        """Keep a record."""
        if self._known.get(key) == record:
            return
        self._known[key] = record
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(self._folder / key.file_name, json.dumps(asdict(record)).encode())
            self._prune()
        except OSError as error:
            _log.warning("what runs import is not written down, this life of the agent knows it: %s", error)

    def _read(self, key: Key) -> ImportRecord:
        try:
            stored = json.loads((self._folder / key.file_name).read_bytes())
            return ImportRecord(
                tuple(_names_in(stored["names"])), float(stored["cpu_seconds"]), dict(stored["left_out"])
            )
        except (OSError, ValueError, KeyError, TypeError):
            return ImportRecord()

    def _prune(self) -> None:
        """Keep the newest files only."""
        files = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in files[:-_MOST_RECORDS]:
            path.unlink(missing_ok=True)


def read_imports(job_folder: Path) -> tuple[list[str], float] | None:
    """What a run wrote down: modules in the order of their import, and the CPU seconds that it had used by then.

    Returns:
        None where it wrote nothing that can be understood.
    """
    try:
        with open_folder(job_folder) as folder:
            stored: Any = json.loads(read_untrusted(IMPORTS, inside=folder, limit_bytes=_MOST_BYTES))
        return _names_in(stored["names"]), max(0.0, float(stored["cpu_seconds"]))
    except (OSError, UntrustedFileError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _names_in(stored: Any) -> list[str]:
    names = [name for name in stored if isinstance(name, str) and _NAME.fullmatch(name)]
    return names[:_MOST_NAMES]


def _is_within(name: str, other: str) -> bool:
    return name == other or name.startswith(f"{other}.")
