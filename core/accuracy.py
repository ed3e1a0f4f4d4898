"""Which metrics are accuracies."""

from __future__ import annotations

from tiercel.core.jobs import Direction


def accuracy_of(value: float | None, direction: Direction | None) -> float | None:
    """A metric that is to grow, above 0 and up to 1, by which models can be compared; None for any other."""
    return value if value is not None and direction is Direction.MAX and 0.0 < value <= 1.0 else None
