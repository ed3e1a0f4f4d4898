"""Checkpoints of a script whose state is whatever it says: pickled, with a checksum at the end."""

from __future__ import annotations

import hashlib
import os
import pickle
from pathlib import Path
from typing import IO, Final

from tiercel.trainer_agent.errors import CheckpointError
from tiercel.trainer_agent.trainer.checkpoints import State, refuse_other_framework

_DIGEST_BYTES: Final = 32
_PIECE_BYTES: Final = 1 << 20
PICKLE_BEGINS: Final = b"\x80\x05"
"""Of protocol 5."""

_PYTORCH_BEGINS: Final = b"PK\x03\x04"  # a zip archive


class PickleFormat:
    """Anything that can be pickled.

    A run reads what an earlier run of its own job, or of a job of its tenant, has written where nobody else writes:
    whoever could put a hostile pickle there could as well change the script.
    """

    def write(self, state: State, file: IO[bytes]) -> None:
        """See :class:`~tiercel.trainer_agent.trainer.checkpoints.CheckpointFormat`.

        Raises:
            CheckpointError: The script's state cannot be pickled.
        """
        hashing = _HashingWriter(file)
        try:
            pickle.dump(state, hashing, protocol=5)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise CheckpointError(f"what save() returns cannot be pickled ({error}); let it return bytes") from error
        file.write(hashing.digest())

    def read(self, path: Path) -> State:
        """See :class:`~tiercel.trainer_agent.trainer.checkpoints.CheckpointFormat`.

        Raises:
            CheckpointError: The script lacks a class that the checkpoint needs, or it is of a PyTorch model.
        """
        refuse_other_framework(path, _PYTORCH_BEGINS, "a PyTorch model, and this script was connected without one")
        with path.open("rb") as file:
            left, digest = file.seek(0, os.SEEK_END) - _DIGEST_BYTES, hashlib.sha256()
            file.seek(0)
            while left > 0 and (piece := file.read(min(left, _PIECE_BYTES))):
                digest.update(piece)
                left -= len(piece)
            if left or file.read(_DIGEST_BYTES + 1) != digest.digest():
                raise ValueError("its checksum is another one")
            file.seek(0)
            try:
                state: State = pickle.load(file)  # noqa: S301 - see above
            except (AttributeError, ImportError) as error:
                message = f"the checkpoint of an earlier run of this job does not fit the script any more ({error})"
                raise CheckpointError(message) from error
        return state


class _HashingWriter:
    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._hash = file, hashlib.sha256()

    def write(self, content: bytes) -> int:
        """Write, and remember what was written."""
        self._hash.update(content)
        return self._file.write(content)

    def digest(self) -> bytes:
        """Of all that was written."""
        return self._hash.digest()
