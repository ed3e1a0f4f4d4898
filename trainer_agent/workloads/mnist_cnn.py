"""A small convolutional network on 5,000 MNIST digits. Metric: accuracy. Served: images (28, 28) to scores (10,)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from tiercel.trainer_agent.workloads.data import load_mnist
from tiercel.trainer_agent.workloads.loop import train_classifier
from tiercel.trainer_agent.workloads.options import Options, parse_options

DEFAULTS = Options(epochs=40, seed=0, learning_rate=0.03, batch_size=32, width=16, reports_per_epoch=3)


def build_model(width: int) -> nn.Module:
    """Two convolutions of ``width`` and twice as many channels, each halving the image, and one hidden layer."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        nn.Conv2d(1, width, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * width * 7 * 7, 64),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Linear(64, 10),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Train it."""
    options = parse_options(arguments, DEFAULTS, description=__doc__ or "")
    torch.manual_seed(options.seed)
    train_classifier(build_model(options.width), load_mnist(), options)


if __name__ == "__main__":
    main()
