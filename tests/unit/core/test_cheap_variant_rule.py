"""Whether a cheap variant is shipped, by what was measured; what a run says may be anything."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from tiercel.core.cheap_variant_rule import judged
from tiercel.core.cheap_variants import CHEAP, CheapVariant, VariantKind

GOOD = CheapVariant(
    made="static, calibrated on 128 rows", value=0.962, seconds=1e-4, fp32_seconds=3e-4, size_bytes=1000
)


@pytest.mark.parametrize("kind", CHEAP)
def test_one_that_is_fast_and_accurate_enough_is_shipped(kind: VariantKind) -> None:
    good = replace(GOOD, kind=kind, sha256="ab" * 32)
    assert judged(good, 0.97, 0.01) == replace(good, shipped=True)
    assert judged(replace(good, sha256="../.."), 0.97, 0.01).sha256 == ""
    assert judged(replace(GOOD, value=0.99), 0.97, 0.0).shipped, "it may be better by chance"
    assert judged(replace(GOOD, value=0.96), 0.97, 0.01).shipped, "just as much as is allowed"


@pytest.mark.parametrize(
    ("said", "accuracy", "reason"),
    [
        ({"value": 0.9}, 0.97, r"accuracy is 0.9, 0.07 below the 0.97 .*; 0.01 is allowed \(variants_max_loss\)"),
        ({"value": math.nan}, 0.97, "it was measured and has nan, which is no accuracy"),
        ({"value": -math.inf}, 0.97, "has -inf, which"),
        ({"value": 7.0}, 0.97, "has 7, which"),
        ({"value": None}, 0.97, "has nothing, which"),
        ({}, None, "the metric of the model that it was made of is no accuracy"),
        ({"seconds": 3.1e-4}, 0.97, "not faster where it was made: a row takes 310 us of CPU, and 300 us with"),
        ({"seconds": 2.9e-4}, 0.97, "not faster"),
        ({"seconds": math.nan}, 0.97, "nobody has measured how fast it is"),
        ({"seconds": -1.0}, 0.97, "nobody has measured"),
        ({"fp32_seconds": math.inf}, 0.97, "nobody has measured"),
        ({"reason": "it has no\noperator " + "x" * 1000}, 0.97, "^it has no operator x{281}$"),
        ({"shipped": True, "value": 0.1}, 0.97, "below the"),
    ],
)
def test_one_that_is_not_worth_it_says_why_with_the_figure(
    said: dict[str, float | str | bool | None], accuracy: float | None, reason: str
) -> None:
    found = judged(replace(GOOD, **said), accuracy, 0.01)  # type: ignore[arg-type] # fields by name
    assert not found.shipped
    assert re.search(reason, found.reason), found.reason
    numbers = (found.value, found.seconds, found.fp32_seconds)
    assert all(each is None or math.isfinite(each) for each in numbers), "what is told is finite"
