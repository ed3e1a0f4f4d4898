"""What a spec must look like whose job is submitted again by itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tiercel.core.durations import in_words
from tiercel.core.errors import wrong_field
from tiercel.core.jobs import Direction

if TYPE_CHECKING:
    from tiercel.core.jobs import JobSpec

MAX_AT_MOST = 100
MIN_WINDOW_SECONDS = 60.0
MAX_WINDOW_SECONDS = 366 * 86400.0
MAX_BUDGET_CORE_HOURS = 1e6


def validate_retrain(spec: JobSpec) -> None:
    """Check what a spec says of being submitted again.

    Raises:
        InvalidSpecError: A field is impossible, or does not go together with another one; ``field`` names it.
    """
    terms = spec.retrain
    if terms is None:
        return
    if not 0 < terms.budget_core_hours <= MAX_BUDGET_CORE_HOURS:
        raise wrong_field(
            "retrain.budget", f"{terms.budget_core_hours:g} is not a number of core-hours above 0, up to a million"
        )
    if terms.below is not None and not 0 < terms.below <= 1:
        raise wrong_field("retrain.below", f"{terms.below:g} is not an accuracy above 0 and up to 1, nor 'promise'")
    if not 1 <= terms.at_most <= MAX_AT_MOST:
        raise wrong_field("retrain.at_most", f"{terms.at_most} is not a number of retrainings from 1 to {MAX_AT_MOST}")
    seconds = terms.window_seconds
    if not (math.isfinite(seconds) and MIN_WINDOW_SECONDS <= seconds <= MAX_WINDOW_SECONDS):
        raise wrong_field(
            "retrain.window",
            f"{seconds:g} s is not a time from {in_words(MIN_WINDOW_SECONDS)} to {in_words(MAX_WINDOW_SECONDS)}",
        )
    _check_beside(spec)


def _check_beside(spec: JobSpec) -> None:
    if spec.every_seconds is not None:
        raise wrong_field("retrain", "is given beside 'every', which trains it again in any case; give one of the two")
    if spec.direction is not Direction.MAX or not all(0 < tier.target <= 1 for tier in spec.tiers):
        raise wrong_field(
            "retrain",
            f"goes by how often answers are right, with which {spec.metric!r} cannot be compared; use an accuracy as "
            "the metric, with tiers from 0 to 1, or leave it out",
        )
    if spec.data and all(each.sha256 for each in spec.data):
        raise wrong_field(
            "retrain",
            "would train on the same data again, as every data set has a sha256; leave that out of those that grow",
        )
