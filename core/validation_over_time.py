"""What the fields of a job's spec that are about its runs over time must look like."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tiercel.core.durations import in_words
from tiercel.core.errors import InvalidSpecError

if TYPE_CHECKING:
    from tiercel.core.jobs import JobSpec

MIN_DURATION_SECONDS = 1.0
MAX_DURATION_SECONDS = 3650 * 86400.0


def validate_over_time(spec: JobSpec) -> None:
    """Check what a spec says of its runs over time.

    Raises:
        InvalidSpecError: A field is impossible; ``field`` names it.
    """
    if spec.max_duration_seconds is not None:
        _check_seconds("max_duration", spec.max_duration_seconds, MIN_DURATION_SECONDS, MAX_DURATION_SECONDS)


def _check_seconds(field: str, seconds: float, least: float, most: float) -> None:
    if not (math.isfinite(seconds) and least <= seconds <= most):
        raise InvalidSpecError(
            f"{field}: {seconds:g} s is not a time from {in_words(least)} to {in_words(most)}; give one such as 90m, "
            "or leave it out",
            field=field,
        )
