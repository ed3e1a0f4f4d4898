"""Requests to endpoints, against a server that speaks the Open Inference Protocol."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider

from testing.doubling_model import DoublingModel
from testing.jobs_service import TOKEN, Script
from tiercel import Client, ClientOptions, InvalidSpecError, NotFoundError, UnavailableError
from tiercel.broker.client.places import places_of
from tiercel.core.endpoint_views import EndpointInfo
from tiercel.core.wire import from_proto
from tiercel.v1 import jobs_pb2


def _nested(depth: int) -> Any:
    value: Any = 1.0
    for _ in range(depth):
        value = [value]
    return value


@pytest.fixture
async def model(script: Script) -> AsyncIterator[DoublingModel]:
    model = DoublingModel()
    address = await model.start()
    script.endpoints.append(jobs_pb2.Endpoint(name="digits", live_version=3, serving_http=address))
    yield model
    await model.stop()


async def test_nested_lists(client: Client, model: DoublingModel) -> None:
    result = await client.infer("digits", {"input": [[1, 2], [3, 4.5]]})

    assert result.version == 3
    assert result.outputs["output"].tolist() == [[2, 4], [6, 9]]
    assert result.outputs["output"].argmax() == [1, 1]
    assert model.requests[0]["inputs"] == [
        {"name": "input", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4.5]}
    ]
    assert result.to_json()["outputs"][0]["data"] == [[2, 4], [6, 9]]


async def test_who_may_answer_is_said_and_who_did_is_told(client: Client, model: DoublingModel) -> None:
    plain = await client.infer("digits", {"input": [[1, 2]]})
    model.says = {"variant": "large", "version": "3", "accuracy": 0.9}
    result = await client.infer("digits", {"input": [[1, 2]]}, minimum_accuracy=0.85)

    assert [request.get("parameters") for request in model.requests] == [None, {"minimum_accuracy": 0.85}]
    assert (plain.variant, plain.accuracy) == ("", None)
    assert (result.variant, result.accuracy) == ("large", 0.9)
    assert {key: result.to_json()[key] for key in ("variant", "accuracy")} == {"variant": "large", "accuracy": 0.9}


async def test_numpy_arrays(client: Client, model: DoublingModel) -> None:
    result = await client.infer("digits", {"input": np.array([[0.5, 1.0]], dtype=np.float32)})

    assert np.array_equal(np.array(result.outputs["output"].tolist()), [[1.0, 2.0]])


async def test_a_request_is_part_of_the_trace_of_whoever_asks(client: Client, model: DoublingModel) -> None:
    with TracerProvider().get_tracer("test").start_as_current_span("ask") as own:
        await client.infer("digits", {"input": [[1, 2]]})
    await client.infer("digits", {"input": [[1, 2]]})

    context = own.get_span_context()
    assert model.traceparents == [f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}", ""]


async def test_where_it_answers_is_remembered_until_it_moves(
    client: Client, script: Script, model: DoublingModel
) -> None:
    for _ in range(2):
        await client.infer("digits", {"input": [[1, 2]]})
    assert script.calls.count("ListEndpoints") == 1

    await model.stop()
    script.endpoints[0].serving_http = await model.start()
    await client.infer("digits", {"input": [[1, 2]]})

    assert script.calls.count("ListEndpoints") == 2


async def test_another_replica_answers_before_the_broker_knows_that_the_home_does_not(
    address: str, client: Client, script: Script, model: DoublingModel
) -> None:
    other = DoublingModel()
    places = [
        jobs_pb2.EndpointReplica(node_id="a", answering_version=3, serving_http=script.endpoints[0].serving_http),
        jobs_pb2.EndpointReplica(node_id="b", serving_http="127.0.0.1:9"),  # has no version yet
        jobs_pb2.EndpointReplica(node_id="c", answering_version=3, serving_http=await other.start()),
    ]
    script.endpoints[0].node_id = "a"
    script.endpoints[0].places.extend(places)
    try:
        await client.infer("digits", {"input": [[1, 2]]})
        assert (len(model.requests), len(other.requests)) == (1, 0)
        await model.stop()
        for _ in range(2):
            await client.infer("digits", {"input": [[1, 2]]})
        assert len(other.requests) == 2
        assert script.calls.count("ListEndpoints") == 2
        # It is there again and drained, and the other one answers in its place.
        home = script.endpoints[0].places[0]
        home.ClearField("answering_version")
        script.endpoints[0].serving_http = home.serving_http = await model.start()
        async with Client(address, token=TOKEN) as later:
            await later.infer("digits", {"input": [[1, 2]]})
        assert (len(model.requests), len(other.requests)) == (1, 3)
        await model.stop()
    finally:
        await other.stop()
    with pytest.raises(UnavailableError, match="does not answer at"):
        await client.infer("digits", {"input": [[1, 2]]})


async def test_a_node_that_says_it_is_asked_in_the_clear_elsewhere_is_sent_nothing(
    client: Client, script: Script, model: DoublingModel
) -> None:
    script.endpoints[0].node_id = "a"
    for node, serving in (("a", "192.0.2.1:80"), ("b", script.endpoints[0].serving_http)):
        place = jobs_pb2.EndpointReplica(node_id=node, answering_version=3, serving_http=serving)
        script.endpoints[0].places.append(place)
    await client.infer("digits", {"input": [[1, 2]]})
    assert len(model.requests) == 1
    del script.endpoints[0].places[1]
    script.endpoints[0].serving_http = "192.0.2.1:80"
    with pytest.raises(UnavailableError, match="The inference server of endpoint 'digits' does not answer"):
        places_of("digits", (from_proto(EndpointInfo, script.endpoints[0]),))


async def test_nobody_else_is_asked_once_the_deadline_is_over(
    address: str, script: Script, model: DoublingModel
) -> None:
    script.endpoints[0].node_id = "a"
    options = ClientOptions(infer_deadline_seconds=0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and never says anything
        for node, serving in (("a", f"127.0.0.1:{silent.getsockname()[1]}"), ("b", script.endpoints[0].serving_http)):
            place = jobs_pb2.EndpointReplica(node_id=node, answering_version=3, serving_http=serving)
            script.endpoints[0].places.append(place)
        async with Client(address, token=TOKEN, options=options) as client:
            with pytest.raises(UnavailableError, match="does not answer"):
                await client.infer("digits", {"input": [[1, 2]]})
    assert model.asked == 0


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": [[1, 2]]}, "inputs are input; given: x"),
        ({}, "given: none"),
        ({"input": [[1, 2], [3]]}, "different lengths"),
        ({"input": [[1, float("nan")]]}, "finite"),
        ({"input": [[1, 2, 3]]}, "shape of another model"),
        (
            {"input": "hello"},
            "input: the model takes FP32, and 'hello' is not of it; give nested lists of finite numbers",
        ),
        ({"input": None}, "None is not of it"),
        ({"input": {"a": [1, 2]}}, "'a'.* is not of it"),
        ({"input": [[1, None]]}, "None is not of it"),
        ({"input": [["1", 2]]}, "'1' is not of it"),
        ({"input": [[1, {"b": "x" * 1000}]]}, "x… is not of it"),
        ({"input": [[[1, 2]], [3]]}, "3 is not of it|different lengths"),
        ({"input": np.array([["a", "b"]])}, "'a' is not of it"),
        ({"input": _nested(500)}, "nested 500 deep"),
    ],
)
async def test_wrong_inputs_are_named(
    client: Client, model: DoublingModel, inputs: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidSpecError, match=message) as caught:
        await client.infer("digits", inputs)
    assert caught.value.field.startswith("inputs")


async def test_endpoints_that_do_not_answer(client: Client, script: Script, model: DoublingModel) -> None:
    with pytest.raises(NotFoundError, match=r"'other' \(known: digits\)\.$"):
        await client.infer("other", {})
    script.endpoints.extend(jobs_pb2.Endpoint(name=f"e{number}") for number in range(40))
    with pytest.raises(NotFoundError, match=r"and 31 more that .*; did you mean 'digits'\?$"):
        await client.infer("digit", {})
    del script.endpoints[1:]
    script.endpoints[0].ClearField("live_version")
    with pytest.raises(UnavailableError, match="first tier"):
        await client.infer("digits", {})
    script.endpoints[0].live_version = 3
    await model.stop()
    with pytest.raises(UnavailableError, match="does not answer"):
        await asyncio.wait_for(client.infer("digits", {}), 90)
