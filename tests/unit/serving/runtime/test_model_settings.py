from __future__ import annotations

from pathlib import Path

import pytest

from testing import onnx_models
from tiercel.core.errors import ArtefactRefusedError
from tiercel.serving.canary_plan import CanaryPlan
from tiercel.serving.runtime.engine import build_session
from tiercel.serving.runtime.model_settings import MAX_BYTES, NOTHING_SET, ModelSettings, read_model_settings
from tiercel.serving.runtime.providers import Provider


def settings(folder: Path, text: str | bytes) -> ModelSettings:
    (folder / "m" / "1").mkdir(parents=True, exist_ok=True)
    (folder / "m" / "config.pbtxt").write_bytes(text.encode() if isinstance(text, str) else text)
    return read_model_settings(folder / "m" / "1" / "model.onnx")


TRITON = """
name: "digits"  # of another server
backend: "onnxruntime"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 64 ] reshape { shape: [ 8, 8 ] } } ]
instance_group [ { count: 2 kind: KIND_GPU gpus: [ 0, 1 ] } ]
dynamic_batching {
  preferred_batch_size: [ 4, 8 ]
  max_queue_delay_microseconds: 500
  priority_levels: 2
  default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 250000 max_queue_size: 10 }
}
parameters { key: "gpu_mem_limit" value: { string_value: "1000" } }
parameters { key: "canary_fraction" value: { string_value: "0.1" } }
parameters { key: "canary_seconds" value: { string_value: "5" } }
"""


def test_what_means_something_here_is_read_from_what_triton_reads(tmp_path: Path) -> None:
    assert settings(tmp_path, TRITON) == ModelSettings(8, 0.0005, 0.25, CanaryPlan(0.1, 5.0), Provider.CUDA, 1000)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "max_batch_size: 0",
        "dynamic_batching { }",
        "instance_group { kind: KIND_AUTO }",
        "instance_group { kind: KIND_MODEL }",
        "instance_group [ { kind: KIND_CPU }, { kind: KIND_GPU } ]",
        'parameters { key: "gpu_mem_limit" value { string_value: "1 GB" } }',
    ],
)
def test_what_is_not_said_is_not_set(tmp_path: Path, text: str) -> None:
    assert settings(tmp_path, text) == NOTHING_SET


def test_where_it_runs_is_an_instance_group(tmp_path: Path) -> None:
    assert settings(tmp_path, "instance_group { kind: KIND_CPU }").provider is Provider.CPU
    assert settings(tmp_path, "instance_group [ { kind: KIND_GPU }, { kind: KIND_GPU } ]").provider is Provider.CUDA


def test_no_delay_is_another_thing_than_nothing_said(tmp_path: Path) -> None:
    assert settings(tmp_path, "dynamic_batching { max_queue_delay_microseconds: 0 }").max_queue_delay == 0.0


def test_no_file_sets_nothing(tmp_path: Path) -> None:
    assert read_model_settings(tmp_path / "m" / "1" / "model.onnx") is NOTHING_SET


@pytest.mark.parametrize(
    "text",
    [
        "max_batch_size: [",
        b"\xff\xfe",
        "#" * (MAX_BYTES + 1),
        "a { " * 5000,
        "instance_group { kind: KIND_TPU }",
        'max_batch_size: "eight"',
    ],
)
def test_what_cannot_be_read_sets_nothing_and_is_named_in_the_log(
    tmp_path: Path, text: str | bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert settings(tmp_path, text) == NOTHING_SET
    assert "config.pbtxt is not looked at" in caplog.text


def test_a_wrong_canary_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ArtefactRefusedError, match=r"config.pbtxt: parameters: canary_fraction must be"):
        settings(tmp_path, 'parameters { key: "canary_fraction" value { string_value: "2" } }')


def test_a_session_is_run_as_it_is_set() -> None:
    session = build_session(onnx_models.plus(1.0), {}, 1, 1.0, 64)
    assert session.batch_rows > 1
    assert session.inline_elements >= 0
    session.queue_rows = (8, 128)
    session.apply(ModelSettings(max_batch_rows=64))
    assert session.queue_rows == (8, 64)
    session.apply(ModelSettings(max_batch_rows=1, max_queue_delay=0.1))
    assert (session.batch_rows, session.inline_elements) == (1, -1)
    assert max(session.queue_rows) == 1
