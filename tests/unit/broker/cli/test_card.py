"""What people read of a version's int8 model."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from tiercel.broker.cli.models.card import lines
from tiercel.core.cheap_variants import CheapVariant, VariantKind
from tiercel.core.endpoint_views import VersionInfo
from tiercel.core.lineage import Lineage
from tiercel.core.models import ModelCard

SHIPPED = CheapVariant(
    shipped=True, made="static, calibrated on 128 rows", value=0.968, seconds=1e-5, fp32_seconds=3e-5, size_bytes=2048
)
AT = datetime(2026, 11, 27, tzinfo=UTC)
VERSION = VersionInfo(3, "j1", 1, "accuracy", 0.97, AT, "ab", endpoint="digits")


def told(*variants: CheapVariant) -> list[str]:
    version = replace(VERSION, cheap_variants=variants)
    card = ModelCard(version, Lineage("digits", 3, "j1", 1, "accuracy", 0.97, AT, "ab"))
    return [line for line in lines(card) if line.startswith(("int8", "fp16"))]


def test_the_card_says_what_became_of_cheap_variants() -> None:
    assert told() == []
    refused = CheapVariant(VariantKind.FP16, reason="it is not faster where it was made: \x1b[2J")
    assert told(SHIPPED, refused) == [
        "int8        accuracy 0.968, 3.0 times as fast, 2 KiB, static, calibrated on 128 rows",
        "fp16        not shipped: it is not faster where it was made: \ufffd[2J",
    ]
    untimed = replace(SHIPPED, kind=VariantKind.FP16, seconds=None, fp32_seconds=None, made="weights in float16")
    assert told(untimed) == ["fp16        accuracy 0.968, 2 KiB, weights in float16"]
