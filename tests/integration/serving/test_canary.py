from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from testing import onnx_models
from testing.serving_process import Reply, ServingProcess, serving, wait_for
from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.inference import open_inference_grpc_pb2_grpc as pb_grpc
from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.inference_server.client import ServingClient

QUESTION = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0, 0, 0, 0]}]}
LOAD = "/v2/repository/models/m/load"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServingProcess]:
    """Version 1 is live; 2 lies beside it."""
    onnx_models.put(tmp_path / "models", "m", 1, onnx_models.plus(1.0))
    with serving(tmp_path / "models", tmp_path) as server:
        onnx_models.put(tmp_path / "models", "m", 2, onnx_models.plus(2.0))
        yield server


def load(server: ServingProcess, **parameters: object) -> Reply:
    return server.request("POST", LOAD, {"parameters": parameters})


def ask(server: ServingProcess, version: str = "") -> str:
    """The version that answered."""
    path = f"/v2/models/m/versions/{version}/infer" if version else "/v2/models/m/infer"
    answer = server.request("POST", path, QUESTION).content
    assert answer["outputs"][0]["data"] == [float(answer["model_version"])] * 4
    return str(answer["model_version"])


def ask_until_it_is_over(server: ServingProcess) -> Any:
    """The trial, when it has ended; asks all the time."""

    def ended() -> Any:
        ask(server)
        trial = server.request("GET", "/v2/models/m/canary").content["canary"]
        return trial if trial["state"] != "RUNNING" else None

    return wait_for(ended, "the trial to end")


def test_a_canary_answers_its_share_and_then_everything(server: ServingProcess) -> None:
    patient = {"canary_max_latency_ratio": 1e6}  # where the machine is busy, either may be slow by chance
    assert load(server, canary_fraction=0.5, canary_requests=20, **patient).content["version"] == "2"
    assert [ask(server) for _ in range(4)] == ["1", "2", "1", "2"]
    assert [ask(server, version) for version in ("2", "1")] == ["2", "1"]
    assert server.index()["m", "2"] == ("READY", "on trial with 0.5 of the requests")
    trial = ask_until_it_is_over(server)
    assert (trial["state"], trial["version"], trial["new"]["errors"]) == ("PROMOTED", "2", 0)
    assert ask(server) == "2"
    wait_for(lambda: server.index()["m", "1"][0] == "UNAVAILABLE", "the old version to be released")


def test_a_canary_that_answers_something_else_is_rolled_back_over_grpc_too(server: ServingProcess) -> None:
    parameters = {
        "canary_fraction": pb.ModelRepositoryParameter(string_param="0.25"),
        "canary_seconds": pb.ModelRepositoryParameter(int64_param=600),
        "canary_compare_fraction": pb.ModelRepositoryParameter(string_param="1"),
        "canary_max_difference": pb.ModelRepositoryParameter(string_param="0.5"),
    }
    with grpc.insecure_channel(server.grpc) as channel:
        stub = pb_grpc.GRPCInferenceServiceStub(channel)
        stub.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="m", parameters=parameters), timeout=60)
        trial = ask_until_it_is_over(server)
        assert trial["state"] == "ROLLED_BACK"
        assert trial["compared"]["largest_difference"] == 1.0
        assert ask(server) == "1"
        wait_for(lambda: server.index()["m", "2"][0] == "UNAVAILABLE", "the new version to be released")
        assert server.index()["m", "2"][1].startswith("rolled back: outputs differ by 1")
        wrong = {"canary": pb.ModelRepositoryParameter(bool_param=True)}
        with pytest.raises(grpc.RpcError, match="'canary' is unknown"):
            stub.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="m", parameters=wrong), timeout=60)


def test_where_it_is_set_a_delivery_is_over_when_its_trial_is(tmp_path: Path) -> None:
    """The agent says nothing of a canary; what it hears is whether the version answers everything."""
    onnx_models.put(tmp_path / "models", "m", 1, onnx_models.plus(1.0))
    with serving(tmp_path / "models", tmp_path, {"canary_fraction": 0.5, "canary_seconds": 1}) as server:
        onnx_models.put(tmp_path / "models", "m", 2, onnx_models.plus(2.0))
        with ThreadPoolExecutor(1) as thread:
            delivery = thread.submit(server.load, "m")
            wait_for(lambda: server.index().get(("m", "2"), ("", ""))[1].startswith("on trial"), "the trial")
            assert {ask(server), ask(server)} == {"1", "2"}
            assert delivery.result().content["version"] == "2"
        assert ask(server) == "2"
        assert server.request("GET", "/v2/models/m/canary").content["canary"]["state"] == "PROMOTED"


def test_a_delivery_whose_trial_ends_badly_has_failed_and_stays_so(server: ServingProcess) -> None:
    said = {"canary_fraction": 0.5, "canary_seconds": 600, "canary_compare_fraction": 1, "canary_max_difference": 0.5}
    lines = [f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}' for name, value in said.items()]
    (server.repository / "m" / "config.pbtxt").write_text("\n".join(lines))

    async def deliver() -> str:
        """What the agent makes of it."""
        async with aiohttp.ClientSession() as session:
            with pytest.raises(DeliveryFailedError) as failed:
                await ServingClient(session, lambda: server.http).load("m")
            return failed.value.message

    with ThreadPoolExecutor(1) as thread:
        delivery = thread.submit(lambda: asyncio.run(deliver()))
        wait_for(lambda: server.index().get(("m", "2"), ("", ""))[1].startswith("on trial"), "the trial")
        ask_until_it_is_over(server)
        assert "version 2 of model 'm' was rolled back: outputs differ by 1" in delivery.result()
    assert "was rolled back: outputs differ by 1" in asyncio.run(deliver()), "also when it is asked for again"
    assert ask(server) == "1"


def test_an_earlier_version_comes_back_by_its_number(server: ServingProcess) -> None:
    assert server.load("m").content["version"] == "2"
    file = server.repository / "m" / "1" / "model.onnx"
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    assert load(server, version="1").content == {"name": "m", "version": "1", "state": "READY", "sha256": sha256}
    assert ask(server) == "1"
    assert (load(server, version=9).status, load(server, version="new").status) == (404, 400)
    assert ask(server) == "1"
