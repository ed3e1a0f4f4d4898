"""What processes of other releases say of cheap variants."""

from __future__ import annotations

from tiercel.core.cheap_variants import CheapVariant, VariantKind, cheap_kinds
from tiercel.core.heard_variants import heard_variants
from tiercel.v1.common_pb2 import VARIANT_KIND_FP16, VARIANT_KIND_FP32
from tiercel.v1.common_pb2 import CheapVariant as Message

# The field 8 of a message, a kind that is to come.
_TO_COME = Message.FromString(bytes([0x40, 99]))


def test_each_kind_counts_once_and_what_nobody_here_knows_not_at_all() -> None:
    said = [_TO_COME, Message(kind=VARIANT_KIND_FP32), Message(kind=VARIANT_KIND_FP16, value=0.5), Message(value=0.75)]
    found = (CheapVariant(VariantKind.FP16, value=0.5), CheapVariant(VariantKind.INT8, value=0.75))
    assert heard_variants(said) == found, "one without a kind is of an agent that knew int8 alone"
    assert heard_variants([*said, *said]) == found
    assert cheap_kinds(["fp16", "int4", "fp32", "int8", "int8"]) == (VariantKind.INT8, VariantKind.FP16)
