"""Checkpoints of a job that the broker knows of: the one that it holds, and the one in the artefact store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckpointCopy:
    """A checkpoint of a job that the broker holds a copy of."""

    run_id: str  # the run that wrote it
    at: float  # when the copy was complete, seconds since the Unix epoch


@dataclass(frozen=True, slots=True)
class Artefact:
    """What an artefact store has under one name: its content says what it is."""

    sha256: str  # of its content, hexadecimal
    size_bytes: int  # what it has


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A copy of a checkpoint that is in the artefact store as well, and outlives the broker's machine there."""

    copy: CheckpointCopy  # the copy that it was made from
    at: float  # when it was there, seconds since the Unix epoch
    artefact: Artefact  # what was stored
