"""The training loop that the shipped workloads share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

import tiercel.trainer
from tiercel.trainer import Predict
from tiercel.trainer_agent.workloads.data import Images
from tiercel.trainer_agent.workloads.options import Options

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: tuple[torch.Tensor, torch.Tensor],
    loss_of: Loss,
    evaluate: Callable[[Predict], float],
    *,
    metric: str,
    example_input: npt.NDArray[np.float32],
    options: Options,
) -> None:
    """Train a model as a job, or alone.

    Args:
        model: The model.
        optimizer: Of its parameters.
        data: Inputs and targets to train on; the same number of rows each.
        loss_of: Loss of a batch of inputs and targets.
        evaluate: Measures ``metric`` through a function from arrays to arrays.
        metric: Name to report it under.
        example_input: One row of what ``predict`` takes.
        options: Of the command line.
    """
    inputs, targets = data
    job = tiercel.trainer.connect(model, example_input=example_input, evaluate=evaluate, optimizer=optimizer)
    for _ in job.epochs(options.epochs):
        model.train()
        batches = torch.split(torch.randperm(len(inputs)), options.batch_size)
        report_after = _report_steps(batches, options.reports_per_epoch)
        for step, rows in enumerate(job.steps(batches), 1):
            optimizer.zero_grad()
            loss = loss_of(inputs[rows], targets[rows])
            loss.backward()  # type: ignore[no-untyped-call]  # PyTorch left it without annotations
            optimizer.step()
            if step in report_after:
                job.report(**{metric: evaluate(job.predict)})


def accuracy(x: npt.NDArray[np.float32], y: npt.NDArray[np.int64]) -> Callable[[Predict], float]:
    """A measurement: the fraction of rows whose highest score is the right class."""

    def evaluate(predict: Predict) -> float:
        scores: npt.NDArray[np.float32] = predict(x)
        return float((scores.argmax(axis=1) == y).mean())

    return evaluate


def train_classifier(model: nn.Module, images: Images, options: Options, *, momentum: float = 0.0) -> None:
    """Train a classifier of images by stochastic gradient descent and report its accuracy on the test rows.

    Args:
        model: From images to one score a class.
        images: The data, in the shape that the model takes.
        options: Of the command line.
        momentum: Of the gradient descent.
    """

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(model(x), y)

    train(
        model,
        torch.optim.SGD(model.parameters(), lr=options.learning_rate, momentum=momentum),
        (torch.from_numpy(images.x_train), torch.from_numpy(images.y_train)),
        loss_of,
        accuracy(images.x_test, images.y_test),
        metric="accuracy",
        example_input=images.x_test[:1],
        options=options,
    )


def _report_steps(batches: Sequence[torch.Tensor], reports: int) -> set[int]:
    """After which steps, counted from 1, to report; the last is always among them."""
    return {max(round(len(batches) * number / reports), 1) for number in range(1, reports + 1)}
