"""Cheap variants of a version: models that are made of the one that a job hands over, and answer beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tiercel.core.errors import wrong_field
from tiercel.core.jsonable import Jsonable

if TYPE_CHECKING:
    from tiercel.core.jobs import JobSpec

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


def validate_variants(spec: JobSpec, *, is_accuracy: bool) -> None:
    """Check which models a job's versions answer as.

    Args:
        spec: The job's.
        is_accuracy: Whether its metric is a fraction that is to grow.

    Raises:
        InvalidSpecError: That cannot be; names the field.
    """
    if not (math.isfinite(spec.variants_max_loss) and 0 <= spec.variants_max_loss <= 1):
        raise wrong_field("variants_max_loss", f"{spec.variants_max_loss} is not a fraction from 0 to 1")
    if not spec.variants:
        return
    for name in spec.variants:
        if name == "fp16":
            raise wrong_field("variants", "fp16 is for GPUs, and such models are made for CPUs; give fp32 and int8")
        if name not in (FP32, INT8):
            raise wrong_field("variants", f"{name[:32]!r} is unknown; give {FP32} and {INT8}, or leave it out")
    if len(set(spec.variants)) < len(spec.variants):
        raise wrong_field("variants", "names one twice; give each once")
    if FP32 not in spec.variants:
        raise wrong_field("variants", f"lacks {FP32}, which answers while there is time; give {FP32} and {INT8}")
    if spec.variant:
        raise wrong_field(
            "variants", "is given beside 'variant', whose endpoint other jobs feed as well; leave out one of the two"
        )
    if not is_accuracy:
        raise wrong_field(
            "variants",
            f"would be chosen by their accuracy, which {spec.metric!r} is not; use a metric that is a fraction and to "
            "grow, with tiers from 0 to 1, or leave it out",
        )
