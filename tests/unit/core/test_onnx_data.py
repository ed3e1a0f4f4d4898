"""Weights beside a model: whatever files they are in, they become one, and the model says which."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testing import onnx_models
from tiercel.core import onnx_data
from tiercel.core.onnx_data import DATA_FILE, DataDigest, DataError, JoinedModel, data_of, joined

MODEL = onnx_models.mlp((4, 1025, 3))  # files that do not end on a page
ROWS = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


def saved(folder: Path, *, one_file: bool = True) -> Path:
    folder.mkdir(exist_ok=True)
    onnx_models.save_external(MODEL, folder / "some.onnx", one_file=one_file)
    return folder / "some.onnx"


def of(path: Path) -> JoinedModel:
    model = joined(path)
    assert model is not None
    return model


def answers(model: bytes | Path) -> list[list[float]]:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    answer: list[list[float]] = session.run(None, {"x": ROWS})[0].tolist()
    return answer


def written(model: JoinedModel, folder: Path) -> Path:
    folder.mkdir()
    (folder / "model.onnx").write_bytes(model.write(folder / DATA_FILE))
    return folder / "model.onnx"


@pytest.mark.parametrize("one_file", [True, False])
def test_a_model_in_any_number_of_files_becomes_one_of_two_that_answers_alike(tmp_path: Path, one_file: bool) -> None:
    model = of(saved(tmp_path / "as saved", one_file=one_file))
    path = written(model, tmp_path / "joined")
    assert answers(path) == answers(MODEL)
    data = path.with_name(DATA_FILE).read_bytes()
    assert (
        data_of(path)
        == DataDigest(len(data), hashlib.sha256(data).hexdigest())
        == DataDigest(model.size_bytes, model.digest())
    )
    inside = onnx.load_model(path, load_external_data=False)
    places = [{each.key: each.value for each in tensor.external_data} for tensor in inside.graph.initializer]
    assert {place["location"] for place in places} == {DATA_FILE}
    if not one_file:
        assert {int(place["offset"]) % 4096 for place in places} == {0}
    # What was fetched can be handed over again, and is the same.
    assert written(of(path), tmp_path / "again").read_bytes() == path.read_bytes()


def test_a_model_in_one_file_and_what_is_no_model_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    for content in (MODEL, MODEL[:-9], b"\x3a\xff\xff", b"nonsense"):
        path.write_bytes(content)
        assert joined(path) is None
        assert data_of(path) is None


def name_of(location: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        model = onnx.load_model(path, load_external_data=False)
        for entry in model.graph.initializer[0].external_data:
            if entry.key == "location":
                entry.value = location
        path.write_bytes(model.SerializeToString())

    return change


def linked(path: Path) -> None:
    data = path.with_name("some.onnx_data")
    data.rename(path.with_name("elsewhere"))
    data.symlink_to("elsewhere")


def cut(path: Path) -> None:
    data = path.with_name("some.onnx_data")
    os.truncate(data, data.stat().st_size - 1)


def piped(path: Path) -> None:
    data = path.with_name("some.onnx_data")
    data.unlink()
    os.mkfifo(data)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (name_of("/etc/passwd"), "have to be files beside the model"),
        (name_of("../some.onnx_data"), "have to be files beside the model"),
        (name_of("deep/some.onnx_data"), "have to be files beside the model"),
        (name_of(".."), "have to be files beside the model"),
        (name_of(""), "have to be files beside the model"),
        (name_of("gone"), "gone, where weights of it lie, cannot be read .No such file"),
        (linked, "is a link; put the file itself beside the model"),
        (piped, "is no plain file"),
        (lambda path: path.with_name("some.onnx_data").unlink(), "No such file"),
        (cut, r"its weights end at byte \d+ of 'some.onnx_data', which has \d+; save"),
    ],
)  # fmt: skip
def test_weights_anywhere_else_are_refused(tmp_path: Path, change: Callable[[Path], None], sentence: str) -> None:
    path = saved(tmp_path / "as saved")
    change(path)
    with pytest.raises(DataError, match=sentence):
        joined(path)


def test_too_many_files_and_too_much_beside_them_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "as saved", one_file=False)
    monkeypatch.setattr(onnx_data, "MAX_DATA_FILES", 3)
    with pytest.raises(DataError, match="more than 3 files; save them as one"):
        joined(path)
    monkeypatch.setattr(onnx_data, "MAX_GRAPH_BYTES", 100)
    with pytest.raises(DataError, match="bytes beside the weights in other files, and 100 are possible"):
        joined(path)


@pytest.mark.parametrize("more", [1, -1])
def test_a_file_that_changes_while_it_is_read_is_not_taken(tmp_path: Path, more: int) -> None:
    path = saved(tmp_path / "as saved")
    model, data = of(path), path.with_name("some.onnx_data")
    os.truncate(data, data.stat().st_size + more)
    with pytest.raises(DataError, match="has changed while it was read"):
        model.write(tmp_path / "target")


@pytest.mark.parametrize(
    "said", ["", "5", "0 " + "a" * 64, "-5 " + "a" * 64, "5 " + "g" * 64, "9" * 30 + " " + "a" * 64]
)
def test_a_model_that_says_nonsense_of_its_weights_says_nothing(tmp_path: Path, said: str) -> None:
    model = onnx.load_model_from_string(MODEL)
    model.metadata_props.add(key=onnx_data.KEY, value=said)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    assert data_of(tmp_path / "model.onnx") is None


@given(st.tuples(st.integers(0, 400), st.integers(0, 255)) | st.binary(max_size=60))
def test_no_file_does_harm(tmp_path_factory: pytest.TempPathFactory, change: bytes | tuple[int, int]) -> None:
    folder = tmp_path_factory.mktemp("models")
    path = written(of(saved(folder / "as saved")), folder / "joined")
    content = bytearray(path.read_bytes())
    if isinstance(change, bytes):
        content = bytearray(change)
    else:
        content[change[0] % len(content)] = change[1]
    path.write_bytes(bytes(content))
    data_of(path)
    with contextlib.suppress(DataError):
        joined(path)
