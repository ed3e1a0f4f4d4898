"""When it is worth it to import beforehand what runs import, and what that is: from what their runs did before."""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tiercel.trainer_agent.runtimes.warm.import_records import ImportRecords, Key, read_imports

_log = logging.getLogger(__name__)

_WORTH_CPU_SECONDS: Final = 0.2
_ENOUGH_ORDERS: Final = 2
_MOST_FAILURES: Final = 3
_MOST_FOLDERS: Final = 8
_MOST_KEYS: Final = 1024


@dataclass(slots=True)
class _Runs:
    """What is remembered of a key in this life of the agent."""

    orders: int = 0
    failures: int = 0
    folders: deque[Path] = field(default_factory=lambda: deque(maxlen=_MOST_FOLDERS))


class WarmHistory:
    """What is known of the runs of all keys."""

    def __init__(self, folder: Path) -> None:
        self._records = ImportRecords(folder)
        self._runs: defaultdict[Key, _Runs] = defaultdict(_Runs)

    def note_order(self, key: Key, job_folder: Path) -> None:
        """A run was ordered."""
        runs = self._runs[key]
        runs.orders += 1
        for folder in runs.folders:
            if (found := read_imports(folder)) is not None:
                self._records.put(key, self._records.get(key).with_imports(*found))
        with contextlib.suppress(ValueError):
            runs.folders.remove(job_folder)
        runs.folders.append(job_folder)
        while len(self._runs) > _MOST_KEYS:
            del self._runs[next(each for each in self._runs if each != key)]

    def to_import(self, key: Key) -> list[str]:
        """What to import for the next runs of a key; nothing where that is not worth it, or has failed too often."""
        record, runs = self._records.get(key), self._runs[key]
        worth_it = record.cpu_seconds >= _WORTH_CPU_SECONDS and runs.orders >= _ENOUGH_ORDERS
        return record.to_import if worth_it and runs.failures < _MOST_FAILURES else []

    def note_left_out(self, key: Key, left_out: Mapping[str, str]) -> None:
        """Some modules cannot be imported beforehand, each for a reason."""
        if left_out:
            _log.info("what is imported for runs of %s leaves out %s", key.tenant, left_out)
            self._records.put(key, self._records.get(key).without(left_out))

    def note_start(self, key: Key) -> None:
        """A run was started from what had been imported."""
        self._runs[key].failures = 0

    def note_failure(self, key: Key) -> None:
        """What was imported was of no use."""
        self._runs[key].failures += 1

    def give_up(self, key: Key) -> None:
        """Importing is of no use for as long as this agent lives."""
        self._runs[key].failures = _MOST_FAILURES
