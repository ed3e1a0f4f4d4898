from __future__ import annotations

from pathlib import Path

import pytest

from tiercel.serving.models.instance_group import MAX_BYTES, read_kind


def kind_of(folder: Path, text: str | bytes) -> str | None:
    (folder / "m" / "1").mkdir(parents=True, exist_ok=True)
    (folder / "m" / "config.pbtxt").write_bytes(text.encode() if isinstance(text, str) else text)
    return read_kind(folder / "m" / "1" / "model.onnx")


TRITON = """
name: "digits"  # of another server
backend: "onnxruntime"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 64 ] reshape { shape: [ 8, 8 ] } } ]
instance_group [ { count: 2 kind: KIND_GPU gpus: [ 0, 1 ] } ]
parameters { key: "gpu_mem_limit" value: { string_value: "1000" } }
optimization { execution_accelerators { gpu_execution_accelerator: [ { name: "tensorrt" } ] } }
"""


def test_the_kind_is_read_from_what_triton_reads(tmp_path: Path) -> None:
    assert kind_of(tmp_path, TRITON) == "KIND_GPU"
    assert kind_of(tmp_path, "instance_group { kind: KIND_CPU }") == "KIND_CPU"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "max_batch_size: 8",
        "instance_group { kind: KIND_AUTO }",
        "instance_group { kind: KIND_MODEL }",
        "instance_group [ { kind: KIND_CPU }, { kind: KIND_GPU } ]",
    ],
)
def test_without_one_kind_there_is_none(tmp_path: Path, text: str) -> None:
    assert kind_of(tmp_path, text) is None


@pytest.mark.parametrize(
    "text", ["instance_group {", b"\xff\xfe", "#" * (MAX_BYTES + 1), "a { " * 5000, "instance_group { kind: KIND_TPU }"]
)
def test_what_cannot_be_read_says_nothing_and_is_named_in_the_log(
    tmp_path: Path, text: str | bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert kind_of(tmp_path, text) is None
    assert "config.pbtxt is not looked at" in caplog.text


def test_no_file_says_nothing(tmp_path: Path) -> None:
    assert read_kind(tmp_path / "m" / "1" / "model.onnx") is None
