"""What a training script sees of Tiercel."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

from torch import nn

from tiercel.trainer_agent.trainer.models import predict
from tiercel.trainer_agent.trainer.samples import Samples
from tiercel.trainer_agent.trainer.signature import Prediction, Signature

Item = TypeVar("Item")


class Job(abc.ABC):
    """One training run. Made by :func:`tiercel.trainer.connect`; leaving it as a context manager closes it.

    Args:
        model: The model in training.
        signature: Its inputs.
        samples: Remembers rows that the model is asked about.
    """

    def __init__(self, model: nn.Module, signature: Signature, samples: Samples) -> None:
        self._model, self._signature, self._samples = model, signature, samples

    @property
    @abc.abstractmethod
    def is_attached(self) -> bool:
        """Whether an agent runs the script; False when it runs alone."""

    @property
    @abc.abstractmethod
    def is_stopping(self) -> bool:
        """Whether the script was asked to stop; loops over epochs and steps then end by themselves."""

    @abc.abstractmethod
    def epochs(self, count: int) -> Iterator[int]:
        """The epochs that are left to train, counted from 1.

        Args:
            count: How many the whole training has; a restored run starts after the last finished one, and the job's
                own ``max_epochs`` may end it earlier.
        """

    @abc.abstractmethod
    def steps(self, batches: Iterable[Item]) -> Iterator[Item]:
        """The batches of an epoch. Between two of them the run can be paced, stopped, or asked for a model."""

    @abc.abstractmethod
    def report(self, **metrics: float) -> None:
        """Report metrics of the model as it is now, and print them as one line.

        Args:
            metrics: Numbers by name. The metric that the job's tiers are about has to be among them.

        Raises:
            MissingMetricError: If it is not.
            TypeError: If one is not a number.
            ValueError: If there are none.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Deliver what is still to be delivered, bounded in time, and let go of the agent. Twice does no harm."""

    def predict(self, *arrays: Any) -> Prediction:
        """Ask the model as it is now, in evaluation mode and without gradients; its mode is the same afterwards.

        Args:
            arrays: One NumPy array an input of the model, with the batch as first axis.

        Returns:
            One array, or a tuple of them when the model has several outputs.
        """
        self._samples.remember(arrays)
        return predict(self._model, self._signature, arrays)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
