from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.serving.bodies import HEADER_LENGTH, Form, answer_in, body_of
from benchmarks.serving.models import KINDS, Model
from benchmarks.serving.overload import with_timeout
from tiercel.inference import open_inference_grpc_pb2 as protocol

ROW = np.linspace(0, 1, 64, dtype=np.float32).round(4).reshape(1, 64)
MODEL = Model(KINDS["mlp"], Path("mlp.onnx"), ROW, np.zeros((1, 10), np.float32))


def test_json_numbers_have_four_decimals() -> None:
    (tensor,) = json.loads(body_of(MODEL, Form.JSON).content)["inputs"]
    assert tensor["shape"] == [1, 64]
    assert tensor["data"][1] == 0.0159
    np.testing.assert_allclose(tensor["data"], ROW[0], atol=1e-6)


def test_binary_requests_say_where_their_json_ends_also_with_a_timeout() -> None:
    for body in (body_of(MODEL, Form.BINARY), with_timeout(body_of(MODEL, Form.BINARY), 0.1)):
        length = int(body.headers[HEADER_LENGTH])
        described = json.loads(body.content[:length])
        assert described["inputs"][0]["parameters"]["binary_data_size"] == 256
        assert body.content[length:] == ROW.tobytes()
    assert described["parameters"] == {"timeout": 100_000}


def test_a_grpc_request_is_one_message_with_its_length() -> None:
    content = body_of(MODEL, Form.GRPC).content
    assert content[:5] == b"\0" + (len(content) - 5).to_bytes(4, "big")
    request = protocol.ModelInferRequest.FromString(content[5:])
    assert (request.model_name, request.raw_input_contents[0]) == ("mlp", ROW.tobytes())


@pytest.mark.parametrize(
    ("form", "content", "headers"),
    [
        (Form.JSON, b'{"outputs":[{"data":[1,2]}]}', {}),
        (Form.PLAIN, b"[[1.0, 2.0]]", {}),
        (Form.RAW, np.array([1, 2], np.float32).tobytes(), {}),
        (Form.BINARY, b"{}" + np.array([1, 2], np.float32).tobytes(), {HEADER_LENGTH.lower(): "2"}),
    ],
)
def test_answers_of_every_form_are_read(form: Form, content: bytes, headers: dict[str, str]) -> None:
    assert answer_in(content, headers, form).tolist() == [1.0, 2.0]
