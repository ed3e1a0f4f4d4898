"""What is trained."""

from torch import nn


def build(width: int) -> nn.Module:
    """Two hidden layers."""
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
