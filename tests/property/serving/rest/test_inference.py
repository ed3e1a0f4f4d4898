"""A request of a known template gets what one read in full gets, to the byte, whatever came before it."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from testing import onnx_models
from testing.http_transport import Transport
from tiercel.serving.connections.listening import Connections
from tiercel.serving.dataplane import DataPlane
from tiercel.serving.dispatch.dispatcher import Dispatcher
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.registry import Registry
from tiercel.serving.operators import Operators
from tiercel.serving.rest.connection import HttpConnection
from tiercel.serving.rest.messages import ByteBudget
from tiercel.serving.rest.receiver import HttpLimits
from tiercel.serving.rest.routes import Routes
from tiercel.serving.runtime.engine import Session
from tiercel.serving.runtime.workers import Workers

FEATURES = 3
LIMITS = HttpLimits(4096, 4096, 100, 60.0, 60.0)
MODEL = onnx_models.mlp((FEATURES, 4, 2))
ELEMENTS = st.lists(
    st.one_of(st.floats(-9, 9, width=32), st.sampled_from([1e39, True, None, [1.0], 2**70])),
    min_size=FEATURES,
    max_size=FEATURES,
)
NUMBERS = st.lists(st.floats(-9, 9, width=32), min_size=FEATURES, max_size=FEATURES)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request: most are good and alike, some are odd."""
    numbers: list[Any] = draw(st.one_of(NUMBERS, NUMBERS, ELEMENTS))
    binary = draw(st.booleans())
    plain = draw(st.integers(0, 3)) > 0
    shape = [1, FEATURES] if plain else draw(st.sampled_from([[1, FEATURES], [FEATURES, 1], [1, FEATURES + 1]]))
    tensor: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": shape}
    more: dict[str, Any] = {}
    if not plain:
        more = draw(
            st.sampled_from(
                [
                    {"id": "7"},
                    {"id": draw(st.text(max_size=4))},
                    {"id": "long " * draw(st.sampled_from([1, 51, 52, 300]))},
                    {"outputs": [{"name": "y", "parameters": {"binary_data": True}}]},
                    {"outputs": [{"name": "y", "parameters": {"classification": 1}}]},
                    {"outputs": [{"name": "z"}]},
                    {"parameters": {"binary_data_output": True}},
                    {"parameters": {"timeout": 9_000_000}},
                ]
            )
        )
    tail, headers = b"", ""
    if binary:
        tail = np.array([each if type(each) is float and each < 10 else 1 for each in numbers], np.float32).tobytes()
        tail = tail if plain else draw(st.sampled_from([tail, tail[:-1], tail + b"\0"]))
        tensor["parameters"] = {"binary_data_size": FEATURES * 4}
    else:
        tensor["data"] = numbers if draw(st.integers(0, 3)) else [[numbers]]
    content = {**more, "inputs": [tensor]} if draw(st.booleans()) else {"inputs": [tensor], **more}
    text = json.dumps(content, ensure_ascii=draw(st.booleans())).encode()
    if binary:
        headers = f"Inference-Header-Content-Length: {len(text)}\r\n"
    elif not plain:
        text = text.replace(b"]", draw(st.sampled_from([b"]", b"]]", b"", b",]"])), 1)
    version = draw(st.sampled_from(["", "", "", "/versions/1", "/versions/2"]))
    protocol = draw(st.sampled_from(["1.1"] * 6 + ["1.0"]))
    head = f"POST /v2/models/m{version}/infer HTTP/{protocol}\r\nHost: localhost\r\n{headers}"
    if protocol == "1.0":
        head += "Connection: keep-alive\r\n"
    return f"{head}Content-Length: {len(text) + len(tail)}\r\n\r\n".encode() + text + tail


async def answers(stream: list[bytes], accuracy: float | None, anew: bool = False) -> list[bytes]:
    """What requests get, one after the other, on one connection or each on its own."""
    session = Session(MODEL)
    session.inline_elements = 1000
    session.accuracy = accuracy
    registry = Registry()
    registry.ready = True
    record = registry.record("m")
    record.flip(LoadedVersion("m", 1, session, record.account, record.statistics_of(1)))
    plane = DataPlane(registry, Dispatcher(Workers(1), 10, 10**6), 30.0)
    nothing = cast("Any", None)
    site = Routes(plane, nothing, lambda *_: None, 10**5, nothing, Operators())
    connections: Connections[HttpConnection] = Connections()
    transport, budget = Transport(), ByteBudget(10**6)
    connection: HttpConnection | None = None
    for number, request in enumerate(stream, 1):
        if connection is None or anew:
            connection = HttpConnection(site.handle, LIMITS, budget, connections)
            connection.connection_made(cast("asyncio.Transport", transport))
        connection.data_received(request)
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(transport.written) == number
    assert record.account.requests == record.account.delays.answers + record.account.delays.failures
    assert budget.used == 0
    for each in tuple(connections):
        each.connection_lost(None)
    return transport.written


@settings(max_examples=150, deadline=None)
@given(
    st.lists(requests(), min_size=1, max_size=3),
    st.lists(st.integers(0, 2), min_size=1, max_size=6),
    st.sampled_from([None, 0.5]),
)
def test_both_ways_give_the_same_bytes(different: list[bytes], order: list[int], accuracy: float | None) -> None:
    stream = [different[index % len(different)] for index in order]
    # A connection remembers nothing before its first request, which goes the long way.
    told = asyncio.run(answers(stream, accuracy))
    assert told == asyncio.run(answers(stream, accuracy, anew=True))
    assert all((b'"accuracy":0.5' in each) is (accuracy is not None) for each in told if b" 200 " in each[:20])
