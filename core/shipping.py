"""When a job delivers what is no tier."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shipping:
    """What a job delivers beyond its tiers, once the first of them is delivered; by default the best model at the end.

    Attributes:
        only_tiers: Nothing beyond the tiers.
        every: While it trains, the best model whenever it is better by this much of the metric than the one delivered
            last; None for no.
        best_every_seconds: While it trains, the best model if it is better than the one delivered last, at most once in
            so many seconds; None for no.
    """

    only_tiers: bool = False
    every: float | None = None
    best_every_seconds: float | None = None
