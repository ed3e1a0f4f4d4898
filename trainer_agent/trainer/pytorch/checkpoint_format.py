"""Checkpoints as PyTorch writes them."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import IO

import torch

from tiercel.trainer_agent.trainer.checkpoints import State, refuse_other_framework
from tiercel.trainer_agent.trainer.pickles import PICKLE_BEGINS


class PyTorchFormat:
    """Tensors and plain values, which is what ``torch.load(weights_only=True)`` reads again."""

    def write(self, state: State, file: IO[bytes]) -> None:
        """See :class:`~tiercel.trainer_agent.trainer.checkpoints.CheckpointFormat`."""
        torch.save(state, file)

    def read(self, path: Path) -> State:
        """See :class:`~tiercel.trainer_agent.trainer.checkpoints.CheckpointFormat`.

        Raises:
            CheckpointError: It is of a script without a PyTorch model.
        """
        refuse_other_framework(path, PICKLE_BEGINS, "a script without a PyTorch model, and this script trains one")
        with zipfile.ZipFile(path) as archive:
            # PyTorch does not compare checksums when it loads.
            if (damaged := archive.testzip()) is not None:
                message = f"{damaged} is damaged"
                raise zipfile.BadZipFile(message)
        state: State = torch.load(path, map_location="cpu", weights_only=True)
        return state
