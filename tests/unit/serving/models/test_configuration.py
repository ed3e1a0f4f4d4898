from __future__ import annotations

import pytest

from tiercel.serving.models.configuration import has_batch_axis, model_config
from tiercel.serving.tensors import BY_NAME, TensorSpec

ROWS = TensorSpec("rows", BY_NAME["FP32"], (-1, 4))
WORDS = TensorSpec("words", BY_NAME["BYTES"], (-1,))
SCALAR = TensorSpec("scalar", BY_NAME["INT64"], ())
FIXED = TensorSpec("fixed", BY_NAME["FP32"], (8, 4))


@pytest.mark.parametrize(
    ("inputs", "outputs", "found"),
    [
        ([ROWS, WORDS], [ROWS], True),
        ([ROWS], [SCALAR], False),
        ([ROWS, FIXED], [ROWS], False),
        ([], [ROWS], False),
    ],
)
def test_a_batch_axis_is_one_of_any_size_that_comes_first_everywhere(
    inputs: list[TensorSpec], outputs: list[TensorSpec], found: bool
) -> None:
    assert has_batch_axis(inputs, outputs) is found


def test_dims_are_without_the_batch_axis_only_where_there_are_batches() -> None:
    batched = model_config("m", [ROWS], [WORDS], max_batch_size=8, instances=2, preferred=[4], has_labels=True)
    assert batched["input"] == [{"name": "rows", "data_type": "TYPE_FP32", "dims": [4]}]
    assert batched["output"] == [
        {"name": "words", "data_type": "TYPE_STRING", "dims": [], "label_filename": "labels.txt"}
    ]
    assert batched["dynamic_batching"]["preferred_batch_size"] == [4]
    single = model_config("m", [ROWS, SCALAR], [FIXED], max_batch_size=0, instances=2)
    assert [tensor["dims"] for tensor in (*single["input"], *single["output"])] == [[-1, 4], [], [8, 4]]
    assert "dynamic_batching" not in single
