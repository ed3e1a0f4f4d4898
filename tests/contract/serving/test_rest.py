"""What only REST has."""

from __future__ import annotations

import gzip
import json
from typing import Any

import numpy as np
import pytest

from testing.serving_process import Reply, ServingProcess

INFER = "/v2/models/plus/infer"
INPUT: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0, 1, 2, 3]}


def ask(server: ServingProcess, content: Any, **headers: str) -> Reply:
    return server.request("POST", INFER, content, {name.replace("_", "-"): text for name, text in headers.items()})


def test_the_id_comes_back_and_only_if_given(server: ServingProcess) -> None:
    assert ask(server, {"inputs": [INPUT], "id": "a/7"}).content["id"] == "a/7"
    assert "id" not in ask(server, {"inputs": [INPUT]}).content


@pytest.mark.parametrize("data", [[0, 1, 2, 3], [[0, 1, 2, 3]], [0.0, 1.0, 2.0, 3.0]])
def test_data_may_be_flat_or_nested(server: ServingProcess, data: list[Any]) -> None:
    (output,) = ask(server, {"inputs": [INPUT | {"data": data}]}).content["outputs"]
    assert (output["shape"], output["data"]) == ([1, 4], [3.0, 4.0, 5.0, 6.0])


def test_what_json_cannot_say_is_null(server: ServingProcess) -> None:
    tensor = INPUT | {"data": [1e39, -1e39, 0, 0]}
    assert ask(server, {"inputs": [tensor]}).content["outputs"][0]["data"] == [None, None, 3.0, 3.0]


def test_unknown_parameters_are_of_no_interest(server: ServingProcess) -> None:
    content = {"inputs": [INPUT], "parameters": {"mood": "good", "priority": 1}, "outputs": []}
    assert ask(server, content).status == 200


def test_each_output_may_be_binary(server: ServingProcess) -> None:
    reply = ask(server, {"inputs": [INPUT], "outputs": [{"name": "y", "parameters": {"binary_data": True}}]})
    length = int(reply.headers["inference-header-content-length"])
    assert json.loads(reply.body[:length])["outputs"][0]["parameters"] == {"binary_data_size": 16}
    assert np.frombuffer(reply.body[length:], np.float32).tolist() == [3.0, 4.0, 5.0, 6.0]


def test_packed_bodies_are_read(server: ServingProcess) -> None:
    packed = gzip.compress(json.dumps({"inputs": [INPUT]}).encode())
    assert ask(server, packed, Content_Encoding="gzip").content["outputs"][0]["data"] == [3.0, 4.0, 5.0, 6.0]
    assert ask(server, packed[:-4], Content_Encoding="gzip").status == 400


def test_head_says_what_get_would(server: ServingProcess) -> None:
    found, head = server.request("GET", "/v2/health/live"), server.request("HEAD", "/v2/health/live")
    assert (head.status, head.body, head.headers) == (200, b"", found.headers)


def test_a_body_is_needed(server: ServingProcess) -> None:
    assert server.request("POST", INFER, b"").status == 400  # http.client says that its length is 0
    assert server.request("GET", INFER).headers["allow"] == "POST"
