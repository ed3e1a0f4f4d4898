"""Whether a cheap variant is shipped beside the one that it was made of, by what was measured of both. Pure.

What was measured comes from a run or a client, which is its tenant's: it is taken only in the form that an honest one
gives it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from tiercel.core.blobs import is_sha256
from tiercel.core.cheap_variants import CheapVariant, VariantKind
from tiercel.core.figures import compared, number

FASTER: Final = 0.95
"""Most of the other's CPU time that it may take: what is nearer is alike."""
_REASON_CHARACTERS: Final = 300
# A value may be measured on a few hundred rows, and come from a sum.
_ROUNDING: Final = 1e-9


def judged(
    said: CheapVariant, accuracy: float | None, max_loss: float, *, perhaps_accelerated: bool = False
) -> CheapVariant:
    """What becomes of a cheap variant.

    Args:
        said: What whoever made it says of it; with a reason where there is none.
        accuracy: Of the model that it was made of, measured alike; None where its metric is no accuracy.
        max_loss: By how much it may be less accurate.
        perhaps_accelerated: Whether it may be served on an accelerator, and was timed on a CPU. That says nothing of
            fp16: inference servers, which time each variant where it is to run, decide alone whether it answers there.

    Returns:
        The same, to be shipped or with the reason why it is not.
    """
    is_timed = not perhaps_accelerated or said.kind is not VariantKind.FP16
    plain = CheapVariant(
        kind=said.kind,
        made=_plain(said.made),
        value=_finite(said.value),
        seconds=_finite(said.seconds) if is_timed else None,
        fp32_seconds=_finite(said.fp32_seconds) if is_timed else None,
        size_bytes=max(0, said.size_bytes),
        sha256=said.sha256 if is_sha256(said.sha256) else "",
    )
    reason = _plain(said.reason) or _why_inaccurate(plain, said.value, accuracy, max_loss)
    reason = reason or (_why_slow(plain) if is_timed else "")
    return replace(plain, shipped=not reason, reason=reason)


def _why_inaccurate(made: CheapVariant, said: float | None, accuracy: float | None, max_loss: float) -> str:
    if accuracy is None:
        return "the metric of the model that it was made of is no accuracy above 0 and up to 1"
    if made.value is None or not 0 < made.value <= 1:
        return f"it was measured and has {'nothing' if said is None else number(said)}, which is no accuracy"
    loss = accuracy - made.value
    if loss > max_loss + _ROUNDING:
        value, full = compared(made.value, accuracy)
        return (
            f"its accuracy is {value}, {number(loss)} below the {full} of the model that it was made of; "
            f"{number(max_loss)} is allowed (variants_max_loss)"
        )
    return ""


def _why_slow(made: CheapVariant) -> str:
    if not made.seconds or not made.fp32_seconds or made.seconds < 0 or made.fp32_seconds < 0:
        return "nobody has measured how fast it is"
    part = made.seconds / made.fp32_seconds
    if part > FASTER:
        return (
            f"it is not faster where it was made: a row takes {made.seconds * 1e6:.3g} us of CPU, and "
            f"{made.fp32_seconds * 1e6:.3g} us with the model that it was made of"
        )
    return ""


def _finite(said: float | None) -> float | None:
    return said if said is not None and math.isfinite(said) else None


def _plain(said: str) -> str:
    return " ".join(said[:_REASON_CHARACTERS].split())
