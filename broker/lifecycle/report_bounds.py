"""What is taken of the reports of a run, whatever its script and its node send. Pure.

The agent bounds them as well, and a little tighter; this is for an agent that does not.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tiercel.core.blobs import is_sha256

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tiercel.core.cheap_variants import CheapVariant

MAX_METRICS: Final = 64
"""Metrics of one report that are passed on."""

MOST_SECONDS: Final = 1e11
"""That a run may have used: of a thousand cores three years."""

LATEST_TIME: Final = 253_402_300_799.0
"""The end of the year 9999, in seconds since the Unix epoch; what comes after it has no date."""

MOST_CHARACTERS: Final = 1_000
"""Of why a cheap variant does not answer, and of how it was made."""

REPORTS_PER_SECOND: Final = 25.0
REPORTS_AT_ONCE: Final = 1500.0
"""More than an agent keeps of a run for a broker that was away."""

BYTES_PER_SECOND: Final = 1.5 * 1024**2 / 60
BYTES_AT_ONCE: Final = 3.0 * 1024**2
_BYTES_OF_A_REPORT: Final = 200
_BYTES_OF_A_NUMBER: Final = 24
_NAME: Final = re.compile(r"[A-Za-z0-9_./-]{1,64}", re.ASCII)


def believed_seconds(said: float) -> float:
    """What is taken of the time that a run is said to have used; nothing where that is no time, or none that can be."""
    return said if 0.0 <= said <= MOST_SECONDS else 0.0


def believed_time(said: float) -> float | None:
    """What is taken of a moment that an agent tells, seconds since the Unix epoch; None where no calendar has it."""
    return said if 0.0 <= said <= LATEST_TIME else None


def believed_variant(said: CheapVariant) -> CheapVariant:
    """What is taken of what an agent tells of a cheap variant: without numbers that are none, and with short words."""
    value = said.value if said.value is not None and math.isfinite(said.value) else None
    return replace(
        said,
        shipped=said.shipped and value is not None,
        reason=said.reason[:MOST_CHARACTERS],
        made=said.made[:MOST_CHARACTERS],
        value=value,
        seconds=believed_seconds(said.seconds or 0.0) or None,
        fp32_seconds=believed_seconds(said.fp32_seconds or 0.0) or None,
        sha256=said.sha256 if is_sha256(said.sha256) else "",
    )


def carried_metrics(metrics: Mapping[str, float], metric: str) -> dict[str, float]:
    """What is passed on of a report, first of all the metric that the tiers are about."""
    kept = {metric: metrics[metric]} if metric in metrics else {}
    for name, value in metrics.items():
        if len(kept) >= MAX_METRICS:
            break
        if _NAME.fullmatch(name):
            kept[name] = value
    return kept


class ReportAllowance:
    """How many reports of a run are stored and published one by one.

    Args:
        now: Seconds of the broker's clock.
    """

    def __init__(self, now: float) -> None:
        self._reports = REPORTS_AT_ONCE
        self._bytes = BYTES_AT_ONCE
        self._at = now

    def has_room(self, now: float) -> bool:
        """Whether there is room for another one."""
        passed, self._at = max(0.0, now - self._at), now
        self._reports = min(REPORTS_AT_ONCE, self._reports + passed * REPORTS_PER_SECOND)
        self._bytes = min(BYTES_AT_ONCE, self._bytes + passed * BYTES_PER_SECOND)
        return self._reports > 0 and self._bytes > 0

    def take(self, metrics: Mapping[str, float]) -> None:
        """Make use of it, for a report with these metrics."""
        self._reports -= 1
        self._bytes -= _BYTES_OF_A_REPORT + sum(len(name) + _BYTES_OF_A_NUMBER for name in metrics)
