"""Cheap variants of a version: models that are made of the one that a job hands over, and answer beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tiercel.core.jsonable import Jsonable
from tiercel.core.model_files import MODEL_FILE


class VariantKind(StrEnum):
    """As what a version answers; as specs, answers and files call it."""

    FP32 = "fp32"  # as it was handed over, whatever it computes in
    INT8 = "int8"
    FP16 = "fp16"

    @property
    def file(self) -> str:
        """The name of its file beside the others of the version."""
        return MODEL_FILE if self is VariantKind.FP32 else f"model.{self.value}.onnx"


CHEAP: Final = tuple(kind for kind in VariantKind if kind is not VariantKind.FP32)
"""Those that are made of the model that a job hands over; a version has each once at most."""
DEFAULT_MAX_LOSS: Final = 0.01
"""By how much a cheap variant may be less accurate, a fraction."""


@dataclass(frozen=True, slots=True)
class CheapVariant(Jsonable):
    """What became of a cheap variant of a version.

    Attributes:
        kind: Which it is.
        shipped: Whether it answers beside the model that it was made of.
        reason: Why it does not, with the figure; empty where it does.
        made: How it was made: ``static, calibrated on 128 rows``, or ``dynamic``; empty where it was not.
        value: The job's metric, measured on it as on the one that it was made of; None where it was not.
        seconds: CPU seconds of a row on one thread, in batches of 16; None where that was not measured.
        fp32_seconds: The same of the one that it was made of.
        size_bytes: Of its file; 0 where there is none.
        sha256: Of its file, hexadecimal; empty where there is none.
    """

    # The default is what was stored and told before there were others.
    kind: VariantKind = VariantKind.INT8
    shipped: bool = False
    reason: str = ""
    made: str = ""
    value: float | None = None
    seconds: float | None = None
    fp32_seconds: float | None = None
    size_bytes: int = 0
    sha256: str = ""

    @property
    def outcome(self) -> str:
        """For a log, and for whoever asked for it."""
        return f"{self.kind} model is shipped" if self.shipped else f"{self.kind} model is not shipped: {self.reason}"


def cheap_kinds(words: Iterable[str]) -> tuple[VariantKind, ...]:
    """The cheap variants that a spec names; a word of a later release is left out."""
    named = set(words)
    return tuple(kind for kind in CHEAP if kind in named)
