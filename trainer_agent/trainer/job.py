"""What a training script sees of Tiercel."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from tiercel.trainer_agent.trainer.onnx_files import OnnxSource
from tiercel.trainer_agent.trainer.signature import ExampleInput, Prediction
from tiercel.trainer_agent.trainer.trained import Trained

Item = TypeVar("Item")
T = TypeVar("T")


class Job(abc.ABC):
    """One training run. Made by :func:`tiercel.trainer.connect`; leaving it as a context manager closes it.

    Args:
        trained: The model in training.
    """

    def __init__(self, trained: Trained) -> None:
        self._trained = trained

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
            metrics: Numbers by name. The metric that the job's tiers are about has to be among them. One that is called
                ``epoch`` says which epoch it is, where the script does not go through :meth:`epochs`.

        Raises:
            MissingMetricError: If it is not.
            TypeError: If one is not a number.
            ValueError: If there are none.
        """

    def deliver(
        self,
        onnx: OnnxSource,
        *,
        metrics: Mapping[str, float],
        inputs: ExampleInput | None = None,
        outputs: Any = None,
    ) -> None:
        """Report metrics together with the model that has them, of a job that was connected without a model.

        Args:
            onnx: The content of an ONNX file, the path of one, or an ``onnx.ModelProto``.
            metrics: As for :meth:`report`.
            inputs: A few rows to try it on, as ``example_input`` of :func:`tiercel.trainer.connect`; None for that.
            outputs: What the framework answers to ``inputs``: an array, a tuple of arrays, or a mapping by the names of
                the file's outputs. None: the job's ``predict`` is asked.

        Raises:
            TypeError: The job was connected with a model, or a metric is no number.
            MissingMetricError: The metric that the job's tiers are about is missing.
        """
        with self._trained.offering(onnx, inputs, outputs):
            self.report(**metrics)

    def restored(self, otherwise: T) -> T:
        """What ``save`` of :func:`tiercel.trainer.connect` returned last in an earlier run of the job.

        Args:
            otherwise: What to return in a first run.
        """
        found: T = self._trained.restored(otherwise)
        return found

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
        return self._trained.predict(arrays)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
