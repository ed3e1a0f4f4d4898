"""A node is asked for tokens of a model that another one has."""

from __future__ import annotations

from pathlib import Path

import grpc
import numpy as np

from testing import onnx_models
from testing.generating import VOCABULARY, Served, Stream, exported, greedy
from testing.routes import clear, lead
from testing.serving_process import DEADLINE, serving
from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.inference import open_inference_grpc_pb2_grpc as pb_grpc


def test_another_node_generates(tmp_path: Path) -> None:
    model, content = exported(0)
    for name in ("near", "far"):
        (tmp_path / name / "models").mkdir(parents=True)
    onnx_models.put(tmp_path / "far" / "models", "gpt", 1, content)
    settings = [{"routes_file": tmp_path / name / "routes.json"} for name in ("near", "far")]
    with (
        serving(tmp_path / "near" / "models", tmp_path / "near", settings[0]) as near,
        serving(tmp_path / "far" / "models", tmp_path / "far", settings[1]) as far,
    ):
        lead(near, tmp_path / "near" / "routes.json", "near", {"gpt": (clear("far", far.http),)})
        body = {"input_ids": [5, 9], "max_tokens": 20}
        wanted = greedy(model, [5, 9], 20)
        assert Served(near, model).generate(body)["output_ids"] == wanted
        stream = Stream(near.http, body)
        assert stream.answer.getheader("content-type") == "text/event-stream"
        assert [token for event in stream for token in event["output_ids"]] == wanted
        assert Served(near, model).refused({"input_ids": [-1]})[0] == 400
        assert streamed(near.grpc, [5, 9], 20) == (wanted, "")
        assert streamed(near.grpc, [5, VOCABULARY], 20) == ([], f"0 to {VOCABULARY - 1}")
        far.process.kill()
        assert streamed(near.grpc, [5, 9], 20) == ([], "try again")


def streamed(address: str, prompt: list[int], tokens: int) -> tuple[list[int], str]:
    """What a stream of gRPC answers to one prompt: its tokens, and of an error what it should say to the caller."""
    request = pb.ModelInferRequest(model_name="gpt", id="one")
    request.inputs.add(name="input_ids", datatype="INT64", shape=[1, len(prompt)]).contents.int64_contents.extend(
        prompt
    )
    request.parameters["max_tokens"].int64_param = tokens
    found: list[int] = []
    with grpc.insecure_channel(address) as channel:
        for each in pb_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter([request]), timeout=DEADLINE):
            answer = each.infer_response
            assert answer.id == "one"
            if each.error_message:
                said = [text for text in ("try again", f"0 to {VOCABULARY - 1}") if text in each.error_message]
                return found, said[0] if said else each.error_message
            found += np.frombuffer(answer.raw_output_contents[0], "<i8").tolist()
            is_last = answer.parameters["triton_final_response"].bool_param
            assert is_last == (answer.parameters["finish_reason"].string_param == "length")
    assert is_last
    return found, ""
