"""A multi-layer perceptron on scikit-learn's digits. Metric: accuracy. Served: images (8, 8) to scores (10,)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from tiercel.trainer_agent.workloads.data import load_digits
from tiercel.trainer_agent.workloads.loop import train_classifier
from tiercel.trainer_agent.workloads.options import Options, parse_options

DEFAULTS = Options(epochs=120, seed=0, learning_rate=0.0015, batch_size=4, width=512, reports_per_epoch=1)


def build_model(width: int) -> nn.Module:
    """Two hidden layers of ``width`` units."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Train it."""
    options = parse_options(arguments, DEFAULTS, description=__doc__ or "")
    torch.manual_seed(options.seed)
    train_classifier(build_model(options.width), load_digits(), options)


if __name__ == "__main__":
    main()
