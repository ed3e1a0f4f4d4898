"""What a version is asked is compared with what it was asked at first, by a real server, also over its restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from testing import onnx_models
from testing.serving_process import ServingProcess, serving, wait_for

AT_ONCE = {"input_sample_seconds": 1e-9}


def ask(server: ServingProcess, rows: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    for row in rows:
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": row.tolist()}
        assert server.request("POST", "/v2/models/m/infer", {"inputs": [tensor]}).status == 200


def told(server: ServingProcess) -> Any:
    (line,) = server.request("GET", "/v2/usage").content["inputs"]
    return line


def test_a_change_is_told_in_usage_and_metrics_and_a_restart_makes_nothing_usual(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    onnx_models.put(tmp_path / "models", "m", 1, onnx_models.plus(1))
    kept = tmp_path / "models" / "m" / "1" / "inputs.json"
    with serving(tmp_path / "models", tmp_path, AT_ONCE) as server:
        assert server.request("GET", "/v2/usage").content["inputs"] == []
        ask(server, draw.standard_normal((1000, 4)))
        line = told(server)
        assert (line["model"], line["variant"], line["version"]) == ("m", "", "1")
        assert (line["rows"], line["reference_rows"], line["features"], line["drifted"]) == (500, 500, 4, False)
        wait_for(kept.exists, "the reference on disk")
    with serving(tmp_path / "models", tmp_path, AT_ONCE) as server:
        shifted = draw.standard_normal((500, 4))
        shifted[:, 1] += 1.0
        ask(server, shifted)
        line = told(server)
        assert line["drifted"]
        assert line["farthest"][0]["name"] == "x[1]"
        metrics = server.request("GET", "/metrics").body.decode()
        assert 'tiercel_inputs_drifted{model="m",variant="",version="1"} 1.0' in metrics
        onnx_models.put(tmp_path / "models", "m", 2, onnx_models.plus(2))
        assert server.request("POST", "/v2/repository/models/m/load", {}).status == 200
        ask(server, shifted[:3])
        assert (told(server)["version"], told(server)["reference_rows"]) == ("2", 3), "each version has its own"


def test_a_damaged_reference_is_none_and_a_repository_that_cannot_be_written_fails_nobody(tmp_path: Path) -> None:
    onnx_models.put(tmp_path / "models", "m", 1, onnx_models.plus(1))
    folder = tmp_path / "models" / "m" / "1"
    (folder / "inputs.json").write_bytes(b'{"labels": ["x[0]"], "rows": [[1' + b"0" * 2_000_000)
    (folder / ".inputs.json.part").mkdir()
    with serving(tmp_path / "models", tmp_path, AT_ONCE) as server:
        ask(server, np.random.default_rng(1).standard_normal((510, 4)))
        assert told(server)["reference_rows"] == 500


def test_nothing_is_compared_where_that_is_set(tmp_path: Path) -> None:
    onnx_models.put(tmp_path / "models", "m", 1, onnx_models.plus(1))
    with serving(tmp_path / "models", tmp_path, {"input_sample_seconds": 0}) as server:
        ask(server, np.zeros((3, 4)))
        assert server.request("GET", "/v2/usage").content["inputs"] == []
