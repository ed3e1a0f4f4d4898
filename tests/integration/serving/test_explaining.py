"""What became of a request is asked for by its id, at any node."""

from __future__ import annotations

import json
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from click.testing import CliRunner

from testing import onnx_models
from testing.routes import clear, lead
from testing.serving_process import ServingProcess, serving, wait_for
from tiercel.broker.cli.app import app
from tiercel.broker.cli.asked import request_lines
from tiercel.broker.client.endpoint_client import EndpointClient
from tiercel.core.errors import InvalidSpecError, NotFoundError
from tiercel.inference import open_inference_grpc_pb2 as pb

INPUT = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0.0, 1.0, 2.0, 3.0]}


@dataclass(frozen=True)
class Nodes:
    """One that has models, and one that hands on to it."""

    far: ServingProcess
    near: ServingProcess

    def explain(self, model: str, request_id: str, server: ServingProcess | None = None) -> Any:
        reply = (server or self.far).request("GET", f"/v2/models/{model}/requests/{request_id}")
        assert reply.status == 200, reply.body
        return reply.content


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    root = tmp_path_factory.mktemp("nodes")
    for name in ("near", "far"):
        (root / name / "models").mkdir(parents=True)
    onnx_models.put(root / "far" / "models", "m", 1, onnx_models.plus(1))
    onnx_models.put(root / "far" / "models", "fed", 1, onnx_models.plus(1))
    onnx_models.put(root / "far" / "models", "gone", 1, onnx_models.plus(1))
    onnx_models.put(root / "far" / "models", "loop", 1, onnx_models.counting_loop())
    access = {"endpoints": [{"endpoint": "other", "tenant": "t", "access": "key", "keys": []}]}
    (root / "far" / "access.json").write_text(json.dumps(access))
    onnx_models.put(root / "far" / "models", "other", 1, onnx_models.plus(1))
    far_settings = {
        "routes_file": root / "far" / "routes.json",
        "access_file": root / "far" / "access.json",
        "remembered_requests": 64,
        "request_timeout": 600,  # so that what is given up is not given up for that
    }
    with (
        serving(root / "far" / "models", root / "far", far_settings) as far,
        serving(root / "near" / "models", root / "near", {"routes_file": root / "near" / "routes.json"}) as near,
    ):
        lead(
            near,
            root / "near" / "routes.json",
            "near",
            {name: (clear("far", far.http),) for name in ("m", "fed", "other")},
        )
        lead(far, root / "far" / "routes.json", "far", {"m": (clear("far", far.http),)})
        yield Nodes(far, near)


def ask(server: ServingProcess, request_id: str, rows: int = 1) -> None:
    tensor = INPUT | {"shape": [rows, 4], "data": [0.0] * 4 * rows}
    reply = server.request("POST", "/v2/models/m/infer", {"id": request_id, "inputs": [tensor]})
    assert reply.status == 200, reply.body


def test_an_id_leads_to_the_node_the_version_and_the_time_of_each_step(nodes: Nodes) -> None:
    for request_id in ("first", "again"):  # the second is recognised by its bytes
        before = time.time()
        ask(nodes.far, request_id)
        told = nodes.explain("m", request_id)
        assert (told["model"], told["id"], told["node"], told["version"]) == ("m", request_id, "far", "1")
        assert told["batch"] == {"requests": 1, "place": 1, "rows": 1, "own_rows": 1}
        assert list(told["steps"]) == ["parse", "queue", "batch", "run", "return", "encode"]
        assert told["steps"]["parse"] > 0
        assert all(seconds >= 0 for seconds in told["steps"].values())
        assert sum(told["steps"].values()) == pytest.approx(told["seconds"])
        assert 0 < told["seconds"] < time.time() - before + 0.01
        assert told["error"] == ""


def test_what_was_asked_by_grpc_is_known_by_its_id(nodes: Nodes) -> None:
    request = pb.ModelInferRequest(model_name="m", id="by gRPC / ä", raw_input_contents=[bytes(32)])
    request.inputs.add(name="x", datatype="FP32", shape=[2, 4])
    with grpc.insecure_channel(nodes.far.grpc) as channel:
        infer = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelInferResponse.FromString,
        )
        assert infer(request, timeout=90).id == request.id
    told = nodes.explain("m", "by%20gRPC%20%2F%20%C3%A4")
    assert told["batch"]["own_rows"] == 2


def test_a_node_that_handed_it_on_finds_the_one_that_answered(nodes: Nodes) -> None:
    ask(nodes.near, "handed on")
    told, there = nodes.explain("m", "handed%20on", nodes.near), nodes.explain("m", "handed%20on")
    assert told | {"arrived_at": 0} == there | {"arrived_at": 0}
    assert told["arrived_at"] == pytest.approx(there["arrived_at"], abs=0.1)
    assert told["node"] == "far"
    ask(nodes.far, "never handed on")
    assert nodes.explain("m", "never%20handed%20on", nodes.near)["node"] == "far"


def test_why_a_request_was_not_answered(nodes: Nodes) -> None:
    tensor = {"name": "k", "datatype": "INT64", "shape": [], "data": [500_000_000]}
    body = {"id": "late", "parameters": {"timeout": 50_000}, "inputs": [tensor]}
    assert nodes.far.request("POST", "/v2/models/loop/infer", body).status == 504
    told = nodes.explain("loop", "late")
    assert "did not answer within 0.05 seconds" in told["error"]
    assert list(told["steps"]) == ["parse", "queue"]
    assert told["batch"] is None


def test_that_the_caller_went_away(nodes: Nodes) -> None:
    def requests_of(model: str) -> int:
        models = nodes.far.request("GET", "/v2/usage").content["models"]
        return sum(each["requests"] for each in models if each["name"] == model)

    before = requests_of("loop")
    tensor = {"name": "k", "datatype": "INT64", "shape": [], "data": [500_000_000]}
    address = nodes.far.http.rpartition(":")
    left = json.dumps({"id": "left", "inputs": [tensor]}).encode()
    with socket.create_connection((address[0], int(address[2])), timeout=90) as connection:
        head = b"POST /v2/models/loop/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        connection.sendall(head % len(left) + left)
        wait_for(lambda: requests_of("loop") > before, "the request")
    gone = wait_for(
        lambda: (reply := nodes.far.request("GET", "/v2/models/loop/requests/left")).status == 200 and reply.content,
        "the request whose caller left",
    )
    assert "the caller went away" in gone["error"]


def test_what_is_not_known_or_not_for_who_asks_is_a_sentence(nodes: Nodes) -> None:
    for server in (nodes.far, nodes.near):
        unknown = server.request("GET", "/v2/models/m/requests/nobody")
        assert unknown.status == 404
        assert "no node that was asked knows a request with the id 'nobody' to 'm'" in unknown.error
        assert server.request("GET", "/v2/models/nothing/requests/nobody").status == 404
    for request_id in ("first", "nobody"):  # refused in the same words whether there is one or not
        refused = nodes.far.request("GET", f"/v2/models/other/requests/{request_id}")
        assert refused.status == 401
        assert "'other' is asked with a key" in refused.error
        assert nodes.near.request("GET", f"/v2/models/other/requests/{request_id}").status == 404
    assert nodes.far.request("POST", "/v2/models/m/requests/first").status == 405


def test_a_flood_of_ids_pushes_out_the_oldest_and_no_more(nodes: Nodes) -> None:
    ask(nodes.far, "before the flood")
    for number in range(130):
        ask(nodes.far, f"flood {number}")
    ask(nodes.far, "x" * 129)  # too long to be kept
    assert nodes.far.request("GET", "/v2/models/m/requests/before%20the%20flood").status == 404
    assert nodes.far.request("GET", "/v2/models/m/requests/" + "x" * 129).status == 404
    assert all(nodes.explain("m", f"flood%20{number}") for number in range(66, 130))


async def test_the_sdk_and_the_command_line_tell_it_too(nodes: Nodes) -> None:
    async with EndpointClient(nodes.near.http, key="") as client:
        await client.infer("m", {"x": [[0.0, 1.0, 2.0, 3.0]] * 3}, request_id="by the SDK/1")
        await client.infer("m", {"x": [[0.0] * 4]}, request_id="..")
        assert (await client.explain_request("m", ".."))["id"] == "..", "it is no folder above"
        told = await client.explain_request("m", "by the SDK/1")
        assert told["batch"]["own_rows"] == 3
        with pytest.raises(NotFoundError, match="no node that was asked knows"):
            await client.explain_request("m", "by the SDK/2")
    text = "\n".join(request_lines(told))
    assert "answered  by m version 1 on node far" in text
    assert "3 of 3 rows, number 1 of 1 requests that ran together" in text
    assert all(f"  {step} " in text for step in told["steps"])
    failed = request_lines(told | {"error": "too late\x1b[31m", "batch": None, "steps": {"parse": 0.1, "queue": 0.2}})
    assert "\x1b" not in "".join(failed)
    assert failed[2].startswith("failed    too late")


def test_a_request_is_named_with_its_endpoint() -> None:
    for arguments in (["--request", "a"], ["job", "--request", "a"], ["job", "--endpoint", "m", "--request", "a"]):
        result = CliRunner().invoke(app, ["explain", *arguments])
        assert result.exit_code == 1
        assert "Name the endpoint of the request" in result.output


def say(server: ServingProcess, items: object, model: str = "m") -> Any:
    return server.request("POST", f"/v2/models/{model}/feedback", {"feedback": items})


def test_feedback_reaches_the_node_that_answered_and_is_measured_there(nodes: Nodes) -> None:
    for request_id in ("fed 1", "fed 2", "fed 3"):
        ask(nodes.near, request_id)  # all four outputs are equal, so class 0 is what is answered
    labels: dict[str, object] = {"fed 1": 0, "fed 2": [1], "fed 3": 4, "no": 0}
    items = [{"id": each, "label": label} for each, label in labels.items()]
    reply = say(nodes.near, items)
    assert reply.status == 200, reply.body
    assert (reply.content["taken"], reply.content["unknown"]) == (2, ["no"])
    (refused,) = reply.content["refused"]
    assert refused["id"] == "fed 3"
    assert "a class's number, 0 to 3" in refused["error"]
    (version,) = nodes.far.request("GET", "/v2/models/m/feedback").content["versions"]
    assert (version["version"], version["rows"], version["accuracy"]) == ("1", 2, 0.5)
    assert version["low"] < 0.5 < version["high"]
    again = say(nodes.far, items[:1]).content
    assert (again["taken"], len(again["refused"])) == (0, 1)


def test_feedback_that_is_none_or_on_what_nobody_knows_is_refused(nodes: Nodes) -> None:
    unknown = say(nodes.near, [{"id": "never asked", "label": 0}])
    assert unknown.status == 404
    assert "no node that was asked knows a request with the id 'never asked'" in unknown.error
    one = {"id": "a", "label": 0}
    wrong: list[object] = [None, [], {}, [3], [{"id": "a"}], [one] * 1001]
    for items in wrong:
        assert say(nodes.far, items).status == 400, items
    not_json = b'{"feedback": [{"id": "a", "label": NaN}]}'
    assert nodes.far.request("POST", "/v2/models/m/feedback", not_json).status == 400
    large = b'{"feedback": [{"id": "a", "label": 0}]}' + b" " * 1024**2
    assert nodes.far.request("POST", "/v2/models/m/feedback", large).status == 413
    assert say(nodes.far, [{"id": "first", "label": 0}], "other").status == 401
    assert nodes.far.request("GET", "/v2/models/other/feedback").status == 401


def rows_of(*rows: list[float], label: object, **changed: object) -> dict[str, object]:
    tensor = INPUT | {"shape": [len(rows), 4], "data": rows} | changed
    return {"inputs": [tensor], "label": label}


def test_inputs_are_answered_and_compared_where_the_model_is(nodes: Nodes) -> None:
    third, first = [0.0, 1.0, 2.0, 3.0], [5.0, 0.0, 0.0, 0.0]
    items = [
        rows_of(third, label=3),
        {"id": "no", "label": 0},
        rows_of(third, first, label=[3, 1]),
        rows_of(*[first] * 997, label=[0] * 997),
        *(rows_of(third, label=3) | {"inputs": [each]} for each in (INPUT | {"shape": [4, 1]}, INPUT | {"name": "z"})),
    ]
    for count, server in ((1, nodes.near), (2, nodes.far)):
        reply = say(server, items[:4], "fed")
        assert reply.status == 200, reply.body
        assert reply.content == {"taken": 3, "refused": [], "unknown": ["no"]}
        (version,) = nodes.far.request("GET", "/v2/models/fed/feedback").content["versions"]
        assert (version["version"], version["rows"], version["count"]) == ("1", 1000, 1000 * count)
        assert version["accuracy"] == 0.999
        wrong = [*items[4:], rows_of(third, first, label=[3, 0, 0]), rows_of(third, label=4), rows_of(third, label="3")]
        refused = say(server, wrong, "fed").content["refused"]
        assert [each["item"] for each in refused] == [0, 1, 2, 3, 4]
        for each, why in zip(
            refused,
            (
                "feedback[0].inputs[0].shape is [4, 1], but the model takes [-1, 4]",
                "feedback[1].inputs: input 'z' is unknown",
                "feedback[2].label must have an entry for each of its 2 rows",
                "feedback[3].label must be a class's number, 0 to 3",
                "feedback[4].label must be a whole number",
            ),
            strict=True,
        ):
            assert each["error"].startswith(why)
        many = say(server, [rows_of(*[first] * 10_000, label=[0] * 10_000)], "fed")
        assert (many.status, "1000 are possible" in many.error) == (400, True)
        assert say(server, [rows_of(third, label=3)], "nothing").status == 404
        assert say(server, [rows_of(third, label=3)], "other").status == 401
    assert nodes.near.request("GET", "/v2/models/fed/feedback").content["versions"] == []
    usage = nodes.far.request("GET", "/v2/usage").content
    assert [each["rows"] for each in usage["feedback"] if each["model"] == "fed"] == [1000]
    assert "fed" in [each["model"] for each in usage["inputs"]], "they are looked at as what is asked"


def test_inputs_are_answered_no_further_when_their_caller_leaves(nodes: Nodes) -> None:
    def usage() -> dict[str, int]:
        models = nodes.far.request("GET", "/v2/usage").content["models"]
        return next(each for each in models if each["name"] == "loop")

    tensor = {"name": "k", "datatype": "INT64", "shape": [], "data": [500_000_000]}
    body = json.dumps({"feedback": [{"inputs": [tensor], "label": 0}] * 1000}).encode()
    before = usage()
    address = nodes.far.http.rpartition(":")
    with socket.create_connection((address[0], int(address[2])), timeout=90) as connection:
        head = b"POST /v2/models/loop/feedback HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        connection.sendall(head % len(body) + body)
        wait_for(lambda: usage()["requests"] > before["requests"], "the first of them")
    wait_for(lambda: usage()["failures"] > before["failures"], "the first of them to be given up")
    assert usage()["requests"] == before["requests"] + 1


async def test_the_sdk_says_what_was_right_too(nodes: Nodes) -> None:
    async with EndpointClient(nodes.near.http, key="") as client:
        await client.infer("m", {"x": [[0.0, 1.0, 2.0, 3.0]] * 3}, request_id="said/1")
        labels = {"said/1": [3, 3, 0], "said/2": [1]}
        assert await client.feedback("m", labels) == {"taken": 1, "refused": [], "unknown": ["said/2"]}
        with pytest.raises(NotFoundError, match="no node that was asked knows"):
            await client.feedback("m", {"said/2": 1})
        rows = np.array([[0.0, 1.0, 2.0, 3.0], [5.0, 0.0, 0.0, 0.0]], np.float32)
        inputs = {"x": rows}
        taken = {"taken": 1, "refused": [], "unknown": []}
        assert await client.feedback("fed", inputs=inputs, labels=rows.argmax(axis=1)) == taken
        assert await client.feedback("fed", 3, inputs={"x": rows[:1]}) == taken
        for given in ({"labels": {"said/1": 3}, "inputs": inputs}, {"labels": [3, 0]}):
            with pytest.raises(InvalidSpecError, match="labels: must be by the ids of requests, or with inputs"):
                await client.feedback("fed", **given)


def test_of_a_model_that_is_gone_nothing_is_told_to_whoever_has_its_name_next(nodes: Nodes, tmp_path: Path) -> None:
    request = {"id": "theirs", "inputs": [INPUT]}
    assert nodes.far.request("POST", "/v2/models/gone/infer", request).status == 200
    assert say(nodes.far, [{"id": "theirs", "label": 3}], "gone").content["taken"] == 1
    unload = "/v2/repository/models/gone/unload"
    assert nodes.far.request("POST", unload, {}).status == 200
    assert nodes.explain("gone", "theirs")["version"] == "1", "it may come back"
    folder = nodes.far.repository / "gone"
    shutil.move(folder, tmp_path / "gone")
    assert nodes.far.request("POST", unload, {}).status == 200
    assert nodes.far.request("GET", "/v2/models/gone/requests/theirs").status == 404
    shutil.move(tmp_path / "gone", folder)
    assert nodes.far.load("gone").status == 200
    assert nodes.far.request("GET", "/v2/models/gone/feedback").content["versions"] == []
    assert nodes.far.request("GET", "/v2/models/gone/requests/theirs").status == 404
