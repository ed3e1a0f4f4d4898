"""Answers as classes: what comes between the data plane and a caller who asked for the largest values of an output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.core.errors import TiercelError
from tiercel.serving.dispatch.classification import classified
from tiercel.serving.models.configuration import has_batch_axis
from tiercel.serving.tensors import BY_NAME, TensorSpec

if TYPE_CHECKING:
    from tiercel.serving.models.loaded_version import LoadedVersion
    from tiercel.serving.requests import InferResult

_STRINGS = BY_NAME["BYTES"]


def as_classes(
    on_answer: Callable[[InferResult | TiercelError], None], wanted: Mapping[str, int], loaded: LoadedVersion
) -> Callable[[InferResult | TiercelError], None]:
    """``on_answer``, but given classes instead of tensors.

    Args:
        on_answer: Takes the answer.
        wanted: How many classes, by output.
        loaded: Who answers.
    """
    session = loaded.session
    batched = has_batch_axis(session.inputs.values(), session.outputs.values())

    def answer(result: InferResult | TiercelError) -> None:
        if not isinstance(result, TiercelError):
            for position, output in enumerate(result.outputs):
                count = wanted.get(output.spec.name)
                if count is not None:
                    has_rows = batched and output.array.ndim > 0
                    array = classified(output.array, count, loaded.labels, batched=has_rows)
                    spec = TensorSpec(output.spec.name, _STRINGS, (-1,) * array.ndim)
                    result.outputs[position] = replace(output, spec=spec, array=array)
        on_answer(result)

    return answer
