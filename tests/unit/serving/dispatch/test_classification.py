from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tiercel.core.errors import ArtefactRefusedError
from tiercel.serving.dispatch.classification import classified
from tiercel.serving.models.labels import MAX_BYTES, read_labels
from tiercel.serving.tensors import BY_NAME, DATA_TYPES, DataType

NUMBERS = [kind for kind in DATA_TYPES if kind.name not in {"BOOL", "BYTES"}]


@pytest.mark.parametrize("kind", NUMBERS, ids=lambda kind: kind.name)
def test_the_largest_come_first_whatever_the_type(kind: DataType) -> None:
    found = classified(np.array([[1, 5, 3], [9, 0, 2]]).astype(kind.dtype), 2, batched=True)
    is_whole = kind.dtype.kind in "iu"
    expected = (
        [["5:1", "3:2"], ["9:0", "2:2"]] if is_whole else [["5.000000:1", "3.000000:2"], ["9.000000:0", "2.000000:2"]]
    )
    assert found.tolist() == expected


def test_truth_values_and_strings_have_an_order_too() -> None:
    assert classified(np.array([False, True, True]), 3, batched=False).tolist() == ["1:1", "1:2", "0:0"]
    assert classified(np.array(["b", "é", "a"], np.object_), 2, batched=False).tolist() == ["é:1", "b:0"]


@pytest.mark.parametrize("name", ["UINT64", "INT64"])
def test_whole_numbers_beyond_a_double_keep_their_order(name: str) -> None:
    top = np.iinfo(BY_NAME[name].dtype).max
    found = classified(np.array([top - 1, top, top - 2], BY_NAME[name].dtype), 2, batched=False)
    assert found.tolist() == [f"{top}:1", f"{top - 1}:0"]


def test_the_least_whole_number_is_the_last() -> None:
    assert classified(np.array([-128, 127, 0], np.int8), 3, batched=False).tolist() == ["127:1", "0:2", "-128:0"]


def test_what_is_not_a_number_is_last_and_equals_keep_their_order() -> None:
    values = np.array([np.nan, 1.0, np.inf, 1.0], np.float32)
    assert classified(values, 4, batched=False).tolist() == ["inf:2", "1.000000:1", "1.000000:3", "nan:0"]
    assert classified(np.array([np.nan, -np.inf]), 2, batched=False).tolist() == ["-inf:1", "nan:0"]


def test_labels_are_added_where_there_are_some() -> None:
    values = np.array([0.5, 0.25, 0.125], np.float16)
    found = classified(values, 9, ["cat", "", "dog: small"], batched=False).tolist()
    assert found == ["0.500000:0:cat", "0.250000:1", "0.125000:2:dog: small"]
    assert classified(values, 1, ["cat"], batched=False).tolist() == ["0.500000:0:cat"]


@pytest.mark.parametrize(
    ("shape", "batched", "expected"),
    [
        ((2, 3, 4), True, (2, 5)),
        ((2, 3, 4), False, (5,)),
        ((), False, (1,)),
        ((2,), True, (2, 1)),
        ((0, 7), True, (0, 5)),
        ((3, 0), True, (3, 0)),
        ((0,), False, (0,)),
    ],
)
def test_axes_but_the_batchs_are_one(shape: tuple[int, ...], batched: bool, expected: tuple[int, ...]) -> None:
    assert classified(np.zeros(shape, np.float32), 5, batched=batched).shape == expected


def test_the_versions_labels_go_before_the_models(tmp_path: Path) -> None:
    version = tmp_path / "m" / "1"
    version.mkdir(parents=True)
    assert read_labels(version / "model.onnx") == ()
    (tmp_path / "m" / "labels.txt").write_text("a\nb\n")
    assert read_labels(version / "model.onnx") == ("a", "b")
    (version / "labels.txt").write_bytes("é \r\n\r\nz".encode())
    assert read_labels(version / "model.onnx") == ("é", "", "z")


def test_labels_that_are_no_plain_short_text_refuse_the_version(tmp_path: Path) -> None:
    version = tmp_path / "m" / "1"
    version.mkdir(parents=True)
    labels = version / "labels.txt"
    labels.write_bytes(b"\xff")
    with pytest.raises(ArtefactRefusedError, match="not UTF-8"):
        read_labels(version / "model.onnx")
    labels.write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(ArtefactRefusedError, match="over"):
        read_labels(version / "model.onnx")
    labels.unlink()
    labels.symlink_to("/etc/passwd")
    with pytest.raises(ArtefactRefusedError, match="cannot be read"):
        read_labels(version / "model.onnx")
    labels.unlink()
    labels.mkdir()
    with pytest.raises(ArtefactRefusedError, match="plain file"):
        read_labels(version / "model.onnx")
