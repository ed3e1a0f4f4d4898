"""Checkpoints of a run: written whole or not at all, the one before kept in case the newest cannot be read."""

from __future__ import annotations

import logging
import os
import pickle
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Protocol

from tiercel.trainer_agent.errors import CheckpointError

logger = logging.getLogger(__name__)

LATEST_FILE = "latest.pt"
PREVIOUS_FILE = "previous.pt"
FORMAT = 1
# A checkpoint may cost at most this fraction of the time between two of them.
LARGEST_FRACTION_OF_TIME = 0.05

State = dict[str, Any]


class CheckpointFormat(Protocol):
    """How the state of a training is written."""

    def write(self, state: State, file: IO[bytes]) -> None:
        """Write a state."""

    def read(self, path: Path) -> State:
        """Read what was written; raises one of :data:`DAMAGED` where it is not that any more.

        Raises:
            CheckpointError: It is whole and yet nothing for this script.
        """


# What reading a damaged file may raise.
DAMAGED = (OSError, EOFError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError, zipfile.BadZipFile)


class CheckpointStore:
    """The two newest checkpoints of a run.

    Args:
        interval_seconds: How much time passes between two at least, unless one is forced.
    """

    def __init__(
        self,
        directory: Path,
        checkpoint_format: CheckpointFormat,
        *,
        interval_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory, self._format = directory, checkpoint_format
        self._interval = interval_seconds
        self._clock = clock
        self._next_due = clock() + interval_seconds

    @property
    def is_due(self) -> bool:
        """Whether enough time has passed since the last one."""
        return self._clock() >= self._next_due

    def save(self, state: State) -> None:
        """Write a checkpoint that survives a loss of power, or none.

        Raises:
            OSError: If the disk does not take it; the ones before are then untouched.
        """
        started = self._clock()
        self._directory.mkdir(parents=True, exist_ok=True)
        scratch = self._directory / f".{LATEST_FILE}.part"
        with scratch.open("wb") as file:
            self._format.write({"format": FORMAT, **state}, file)
            file.flush()
            os.fsync(file.fileno())
        latest = self._directory / LATEST_FILE
        if latest.exists():
            latest.replace(self._directory / PREVIOUS_FILE)
        scratch.replace(latest)
        _sync_directory(self._directory)
        took = self._clock() - started
        self._next_due = self._clock() + max(self._interval, took / LARGEST_FRACTION_OF_TIME)

    def load(self) -> State | None:
        """The newest checkpoint that can be read, or None if there is none."""
        for name in (LATEST_FILE, PREVIOUS_FILE):
            path = self._directory / name
            if not path.exists():
                continue
            try:
                return self._read(path)
            except DAMAGED as error:
                logger.warning("the checkpoint %s cannot be read (%s); trying an older one", name, type(error).__name__)
        return None

    def _read(self, path: Path) -> State:
        state = self._format.read(path)
        if state["format"] != FORMAT:
            message = f"it has the format {state['format']}, this version reads {FORMAT}"
            raise ValueError(message)
        return state


def refuse_other_framework(path: Path, its_beginning: bytes, what_differs: str) -> None:
    """Tell a checkpoint of another framework from a damaged one; only ``warm_start`` brings such.

    Raises:
        CheckpointError: It is one.
    """
    with path.open("rb") as file:
        if file.read(len(its_beginning)) == its_beginning:
            message = (
                f"warm_start: the checkpoint is of {what_differs}; name a job of the same framework, or leave out "
                "warm_start"
            )
            raise CheckpointError(message)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
