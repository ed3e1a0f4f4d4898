"""Which metrics are accuracies, and the file beside a version that tells inference servers its own."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tiercel.core.cheap_variants import CheapVariant
from tiercel.core.jobs import Direction

ACCURACY_FILE = "accuracy.json"


def accuracy_of(value: float | None, direction: Direction | None) -> float | None:
    """A metric that is to grow, above 0 and up to 1, by which models can be compared; None for any other."""
    return value if value is not None and direction is Direction.MAX and 0.0 < value <= 1.0 else None


def accuracies(accuracy: float, variants: Iterable[CheapVariant] = ()) -> bytes:
    """What the file says: the accuracy of a version, a fraction, and that of each cheap variant that is shipped."""
    told = {"accuracy": accuracy} | {each.kind.value: each.value for each in variants if each.shipped}
    return json.dumps(told).encode("ascii")
