from __future__ import annotations

from testing import onnx_models
from tiercel.serving.dispatch.variants.configuration import Variant
from tiercel.serving.dispatch.variants.live import LiveVariants
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.registry import Registry
from tiercel.serving.runtime.engine import Session


def test_variants_must_agree_also_where_the_first_one_is_left_out() -> None:
    registry = Registry()
    models = {"a": onnx_models.plus(1.0), "b": onnx_models.plus(2.0), "c": onnx_models.two_in_two_out()}
    for name, content in models.items():
        registry.record(name).flip(LoadedVersion(name, 1, Session(content)))
    variants = Variant("a", "a"), Variant("b", "b", 0.8), Variant("c", "c", 0.9)
    live = LiveVariants("e", variants, registry)
    assert [each.name for each in live.current()] == ["b"]  # a has no accuracy, c takes something else
