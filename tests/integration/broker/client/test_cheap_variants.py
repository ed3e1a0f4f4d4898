"""Cheap variants of a file that is deployed: made of real rows, measured by labels or by the model's own answers."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto, helper

from testing import onnx_models
from tiercel import InvalidSpecError
from tiercel.broker.client import cheap_variants
from tiercel.broker.client.cheap_variants import make_variants
from tiercel.core.cheap_variants import CHEAP, VariantKind

DRAW = np.random.default_rng(0)
ROWS: npt.NDArray[np.float32] = DRAW.standard_normal((400, 64)).astype(np.float32)
WEIGHTS = [(DRAW.standard_normal(shape) / 8).astype(np.float32) for shape in ((64, 1024), (1024, 4))]
LABELS = (np.maximum(ROWS @ WEIGHTS[0], 0) @ WEIGHTS[1]).argmax(1)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model that is right about all rows."""
    path = tmp_path / "wide.onnx"
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["kept"]),
        helper.make_node("MatMul", ["kept", "w"], ["scores"]),
    ]
    content = onnx_models.model(
        nodes,
        {"x": (TensorProto.FLOAT, ["n", 64])},
        {"scores": (TensorProto.FLOAT, ["n", 4])},
        {"v": WEIGHTS[0], "w": WEIGHTS[1]},
    )
    path.write_bytes(content)
    return path


def test_it_is_worth_what_the_model_is_less_what_it_loses_on_the_rows(model: Path, tmp_path: Path) -> None:
    labelled, alone = tmp_path / "labelled.npz", tmp_path / "alone.npy"
    np.savez(labelled, input_x=ROWS, label=LABELS)
    np.save(alone, ROWS)
    values: dict[VariantKind, list[float]] = {kind: [] for kind in CHEAP}
    made = {VariantKind.INT8: "static, calibrated on 128 rows", VariantKind.FP16: "weights in float16"}
    for rows in (labelled, alone):
        scratch = tmp_path / rows.stem
        scratch.mkdir()
        for found in make_variants(CHEAP, model, rows, 0.9, scratch):
            assert (found.reason, found.made) == ("", made[found.kind])
            content = (scratch / found.kind.file).read_bytes()
            assert (found.size_bytes, found.sha256) == (len(content), hashlib.sha256(content).hexdigest())
            assert len(content) < model.stat().st_size / (1.9 if found.kind is VariantKind.FP16 else 3)
            assert found.seconds
            assert found.fp32_seconds
            assert found.value is not None
            values[found.kind].append(found.value)
    # The model is always right here, so that each row that another answers otherwise is one that it answers wrongly.
    for kind, (by_labels, by_answers) in values.items():
        assert by_labels == pytest.approx(by_answers), kind
        assert 0.8 < by_labels <= 0.9, kind
    np.savez(labelled, input_x=ROWS, label=(LABELS + 1) % 4)
    (tmp_path / "wrong").mkdir()
    for found in make_variants(CHEAP, model, labelled, 0.9, tmp_path / "wrong"):
        assert found.value is not None
        assert 0.9 <= found.value <= 1.0, "where the model is always wrong, what is made of it cannot be worse"


def test_what_cannot_be_made_is_a_reason(tmp_path: Path) -> None:
    path, rows = tmp_path / "same.onnx", tmp_path / "rows.npy"
    path.write_bytes(onnx_models.identity(shape=("n", 4)))
    np.save(rows, ROWS[:, :4])
    for found in make_variants(CHEAP, path, rows, 0.9, tmp_path):
        assert found.reason == f"it has no operator that {found.kind} makes faster, such as MatMul, Gemm or Conv"
        assert not (tmp_path / found.kind.file).exists()


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"input_x": ROWS[:20]}, "the same number of rows, 100 or more"),
        ({"input_x": ROWS, "label": LABELS[:200]}, "the same number of rows"),
        ({"input_y": ROWS}, "must have an array for each input, and no other but label: input_x"),
        ({"input_x": ROWS[:, :3]}, "the model does not take these rows"),
        ({"input_x": np.full((200, 64), "a")}, "has values that the model does not take"),
        ({}, "the same number of rows"),
    ],
)
def test_rows_that_cannot_be_used_are_refused_in_words(
    arrays: dict[str, Any], why: str, model: Path, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.npz"
    np.savez(rows, allow_pickle=False, **arrays)
    with pytest.raises(InvalidSpecError, match=f"^calibration: .*{why}"):
        make_variants(CHEAP, model, rows, 0.9, tmp_path)
    rows.write_bytes(b"no rows")
    with pytest.raises(InvalidSpecError, match=r"calibration: .* is no file of numpy"):
        make_variants(CHEAP, model, rows, 0.9, tmp_path)


def test_an_answer_that_is_no_class_is_refused_in_words(tmp_path: Path) -> None:
    path, rows = tmp_path / "values.onnx", tmp_path / "rows.npy"
    path.write_bytes(onnx_models.identity(shape=("n", 1)))
    np.save(rows, ROWS[:, :1])
    with pytest.raises(InvalidSpecError, match="models whose first output says a class"):
        make_variants(CHEAP, path, rows, 0.9, tmp_path)


def test_rows_that_unpack_to_more_than_may_be_are_not_unpacked(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "bomb.npz"
    np.savez_compressed(rows, input_x=np.zeros((400, 64), np.float32))
    assert rows.stat().st_size < 2000
    monkeypatch.setattr(cheap_variants, "MAX_REFERENCE_BYTES", 100_000)
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("it was unpacked"))
    with pytest.raises(InvalidSpecError, match="more than 100000 bytes; give fewer rows"):
        make_variants(CHEAP, model, rows, 0.9, tmp_path)
