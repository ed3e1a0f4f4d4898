"""What a script trains, whatever its framework: how it is asked, kept, written as ONNX, saved and restored."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tiercel.trainer_agent.trainer.checkpoints import CheckpointFormat, State
from tiercel.trainer_agent.trainer.onnx_files import OnnxSource
from tiercel.trainer_agent.trainer.signature import Array, Batch, ExampleInput, Predict, Prediction
from tiercel.trainer_agent.trainer.verification import Compared, OnnxModel

# A copy of the model, as :meth:`Trained.keep` makes it and a checkpoint can hold it.
Copy = Any


class Exported(abc.ABC):
    """An ONNX file that answers as the copy does that it was made of."""

    @property
    @abc.abstractmethod
    def model(self) -> OnnxModel:
        """The file, loaded."""

    @property
    def predict(self) -> Predict:
        """Asks the file as the script's own ``predict`` asks its model."""
        return self.predict_with(self.model)

    @abc.abstractmethod
    def predict_with(self, model: OnnxModel) -> Predict:
        """The same of another file, which takes and gives what this one does."""

    @property
    @abc.abstractmethod
    def rows(self) -> Batch | None:
        """Rows that the script has shown; None where it has shown none."""

    @abc.abstractmethod
    def compared(self) -> Compared:
        """What it was compared on; after it was asked by the script, also on the script's rows.

        Raises:
            DeliveryFailedError: It answers these otherwise.
        """

    @abc.abstractmethod
    def reference(self) -> dict[str, Array]:
        """Rows and the original's answers, as ``input_NAME`` and ``output_NAME``, for whoever verifies the file."""


class Trained(abc.ABC):
    """The model in training."""

    @abc.abstractmethod
    def predict(self, arrays: tuple[Any, ...]) -> Prediction:
        """See :meth:`tiercel.trainer.Job.predict`."""

    @property
    @abc.abstractmethod
    def has_model(self) -> bool:
        """Whether there is a model that could be handed over now."""

    @property
    def keeping_exports(self) -> bool:
        """Whether :meth:`keep` has the script export the model, which may take long."""
        return False

    def restored(self, otherwise: Any) -> Any:
        """What the script saved in an earlier run; ``otherwise`` where there was none."""
        return otherwise

    def offering(self, onnx: OnnxSource, inputs: ExampleInput | None, outputs: Any) -> AbstractContextManager[None]:
        """A model that the script hands over by itself is the one to keep in here.

        Raises:
            TypeError: The library exports the model.
        """
        raise TypeError(
            "deliver() is for jobs that were connected without a model; a PyTorch model is handed over by itself"
        )

    @abc.abstractmethod
    def keep(self) -> Copy:
        """A copy of the model as it is now. Never raises for a model that cannot be had: exporting it then does."""

    @abc.abstractmethod
    def export(self, copy: Copy, path: Path) -> Exported:
        """Write a kept copy as an ONNX file.

        Raises:
            DeliveryFailedError: There is no file that agrees with it; says why.
        """

    @abc.abstractmethod
    def preserved_random_state(self) -> AbstractContextManager[None]:
        """Whatever draws random numbers inside, the generators are afterwards as they were before."""

    @abc.abstractmethod
    def state(self, other_ranks: Mapping[int, bytes]) -> State:
        """What a checkpoint has to hold of the training: what its format can write.

        Args:
            other_ranks: States of the random generators of other ranks, by their numbers.
        """

    @abc.abstractmethod
    def restore(self, state: State, rank: int) -> None:
        """Put everything back.

        Raises:
            RuntimeError, KeyError, ValueError: The state is of another model or optimizer.
        """

    @abc.abstractmethod
    def restore_model(self, state: State) -> None:
        """Put back the model alone, of another job's checkpoint; raises like :meth:`restore`."""

    @property
    @abc.abstractmethod
    def checkpoint_format(self) -> CheckpointFormat:
        """How its state is written."""

    def use_folder(self, folder: Path) -> None:  # noqa: B027 - most have no use for one
        """Keep files that are too large for memory in this folder."""

    @abc.abstractmethod
    def use_threads(self, count: int) -> None:
        """Compute with so many threads."""
