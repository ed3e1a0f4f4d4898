"""When a job delivers what is no tier."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shipping:
    """What a job delivers beyond its tiers, once the first of them is delivered; by default the best model at the end.

    Attributes:
        only_tiers: Whether it delivers nothing beyond the tiers.
        every: While it trains, the best model whenever it is better than the last delivered one by so much of the
            metric. None: no.
        best_every_seconds: While it trains, the best model if it is better than the last delivered one, at most once in
            so many seconds. None: no.
    """

    only_tiers: bool = False
    every: float | None = None
    best_every_seconds: float | None = None
