from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from testing import onnx_models, triton_uploads
from testing.serving_process import ServingProcess, command, serving

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingProcess]:
    root = tmp_path_factory.mktemp("serving")
    onnx_models.put(root / "models", "plus", 3, onnx_models.plus(3.0))
    token = root / "token"
    token.touch(0o600)
    token.write_text(TOKEN)
    with serving(root / "models", root, {"operator_token_file": token}) as server:
        yield server


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_tritonclient_sends_models(server: ServingProcess, kind: str, tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_bytes(onnx_models.plus(5.0))
    bad.write_bytes(onnx_models.with_custom_operator())
    address = server.http if kind == "http" else server.grpc
    words = [sys.executable, str(Path(triton_uploads.__file__)), kind, address, TOKEN, str(good), str(bad)]
    ran = subprocess.run(words, capture_output=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    said: dict[str, Any] = json.loads(ran.stdout)
    statuses = (
        ["401", "422", "401"] if kind == "http" else ["UNAUTHENTICATED", "FAILED_PRECONDITION", "UNAUTHENTICATED"]
    )
    assert [status.removeprefix("StatusCode.") for status, _ in said["refused"]] == statuses
    assert "version 1 stays live" in said["refused"][1][1]
    assert said["infer"] == [[5.0] * 4]
    assert said["ready"] is False
    model = server.repository / f"sent_by_{kind}"
    assert [path.name for path in model.iterdir()] == ["1"]
    assert (model / "1" / "model.onnx").read_bytes() == good.read_bytes()


def test_only_operators_change_the_server_and_everybody_may_look(server: ServingProcess) -> None:
    for path in ("/v2/repository/models/plus/load", "/v2/repository/models/plus/unload", "/v2/shares"):
        refused = server.request("POST", path, {})
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
    operator = {"Authorization": f"Bearer {TOKEN}"}
    assert server.request("POST", "/v2/shares", {"models": {}}, operator).status == 200
    assert server.request("POST", "/v2/repository/models/plus/load", {}, operator).status == 200
    for path in ("/v2/health/ready", "/v2/models/plus", "/v2/models/plus/versions/3/ready", "/v2/usage", "/metrics"):
        assert server.request("GET", path).status == 200
    assert server.index()["plus", "3"] == ("READY", "")
    assert TOKEN not in " ".join(psutil.Process(server.process.pid).cmdline())
    assert TOKEN not in server.log.read_text()


def test_a_token_that_others_can_read_is_a_reason_not_to_start(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o644)
    words = [*command(tmp_path / "models", tmp_path), "--operator-token-file", str(token)]
    ran = subprocess.run(words, capture_output=True, timeout=60, check=False)
    assert ran.returncode == 2
    assert "chmod 600" in ran.stderr.decode().splitlines()[-1]
