"""A recurrent network that reads MNIST digits row by row. Metric: accuracy. Served: images (28, 28) to scores (10,)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from tiercel.trainer_agent.workloads.data import load_mnist
from tiercel.trainer_agent.workloads.loop import train_classifier
from tiercel.trainer_agent.workloads.options import Options, parse_options

DEFAULTS = Options(epochs=60, seed=0, learning_rate=0.03, batch_size=32, width=64, reports_per_epoch=2)


class RowReader(nn.Module):
    """A GRU over the rows of an image, the class read off its last state."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rows = nn.GRU(28, width, batch_first=True)
        self.classes = nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores, shape (batch, 10), of images, shape (batch, 28, 28)."""
        states, _ = self.rows(images)
        scores: torch.Tensor = self.classes(states[:, -1])
        return scores


def main(arguments: Sequence[str] | None = None) -> None:
    """Train it."""
    options = parse_options(arguments, DEFAULTS, description=__doc__ or "")
    torch.manual_seed(options.seed)
    train_classifier(RowReader(options.width), load_mnist(), options, momentum=0.9)


if __name__ == "__main__":
    main()
