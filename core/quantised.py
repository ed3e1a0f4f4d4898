"""Cheap variants of a version: models that are made of the one that a job hands over, and answer beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tiercel.core.jsonable import Jsonable

FP32: Final = "fp32"
INT8: Final = "int8"
DEFAULT_MAX_LOSS: Final = 0.01
"""By how much a quantised model may be less accurate, a fraction."""


@dataclass(frozen=True, slots=True)
class QuantisedModel(Jsonable):
    """What became of the quantised model of a version.

    Attributes:
        shipped: Whether it answers beside the one that it was made of.
        reason: Why it does not, with the figure; empty where it does.
        made: How it was made: ``static, calibrated on 128 rows``, or ``dynamic``; empty where it was not.
        value: The job's metric, measured on it as on the one that it was made of; None where it was not.
        seconds: CPU seconds of a row on one thread, in batches of 16; None where that was not measured.
        fp32_seconds: The same of the one that it was made of.
        size_bytes: Of its file; 0 where there is none.
    """

    shipped: bool = False
    reason: str = ""
    made: str = ""
    value: float | None = None
    seconds: float | None = None
    fp32_seconds: float | None = None
    size_bytes: int = 0

    @property
    def outcome(self) -> str:
        """For a log."""
        return "is shipped" if self.shipped else f"is not shipped: {self.reason}"
