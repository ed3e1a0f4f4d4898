"""What a spec may say of the models that each of its job's versions answers as."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tiercel.core.cheap_variants import CHEAP, VariantKind
from tiercel.core.errors import wrong_field

if TYPE_CHECKING:
    from tiercel.core.jobs import JobSpec

_WHAT_TO_GIVE = f"give {VariantKind.FP32}, and of {' and '.join(CHEAP)} those that are to be made of it"


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
        if name not in set(VariantKind):
            raise wrong_field("variants", f"{name[:32]!r} is unknown; {_WHAT_TO_GIVE}, or leave it out")
    if len(set(spec.variants)) < len(spec.variants):
        raise wrong_field("variants", "names one twice; give each once")
    if VariantKind.FP32 not in spec.variants:
        raise wrong_field("variants", f"lacks {VariantKind.FP32}, which answers while there is time; {_WHAT_TO_GIVE}")
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
