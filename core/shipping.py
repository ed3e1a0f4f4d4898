"""When a job delivers what is no tier."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shipping:
    """What a job delivers beyond its tiers, once the first of them is delivered; by default the best model at the end.

    Attributes:
        only_tiers: Whether it delivers nothing beyond the tiers.
        every: During the training it delivers the best model when that is better than the last delivered one by so much
            of the metric. None: it does not.
        best_every_seconds: During the training it delivers the best model if that is better than the last delivered
            one, at most once in so many seconds. None: it does not.
    """

    only_tiers: bool = False
    every: float | None = None
    best_every_seconds: float | None = None
