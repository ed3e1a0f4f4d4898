"""Checkpoints of a job that the broker knows of: the one that it holds, and the one in the artefact store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckpointCopy:
    """A checkpoint of a job that the broker holds a copy of.

    Attributes:
        run_id: The run that wrote it.
        at: When the copy was complete, seconds since the Unix epoch.
    """

    run_id: str
    at: float


@dataclass(frozen=True, slots=True)
class Artefact:
    """What an artefact store has under one name: its content says what it is.

    Attributes:
        sha256: Of its content, hexadecimal.
        size_bytes: What it has.
    """

    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A copy of a checkpoint that is in the artefact store as well, and outlives the broker's machine there.

    Attributes:
        copy: The copy that it was made from.
        at: When it was there, seconds since the Unix epoch.
        artefact: What was stored.
    """

    copy: CheckpointCopy
    at: float
    artefact: Artefact
