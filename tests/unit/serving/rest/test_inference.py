from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import numpy as np
import pytest

from testing import onnx_models
from testing.http_transport import Transport
from tiercel.serving.accounting.accounts import ModelShare
from tiercel.serving.connections.listening import Connections
from tiercel.serving.dataplane import DataPlane
from tiercel.serving.dispatch.dispatcher import Dispatcher
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.registry import ModelRecord, Registry
from tiercel.serving.operators import Operators
from tiercel.serving.rest import routes
from tiercel.serving.rest.connection import HttpConnection
from tiercel.serving.rest.decoding import decode_request
from tiercel.serving.rest.messages import ByteBudget
from tiercel.serving.rest.receiver import HttpLimits
from tiercel.serving.rest.routes import Routes
from tiercel.serving.runtime.engine import Session
from tiercel.serving.runtime.workers import Workers

TEXT = (
    b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,3],"parameters":{"binary_data_size":12}}],'
    b'"outputs":[{"name":"y","parameters":{"binary_data":true}}]}'
)
BODY = TEXT + np.ones(3, np.float32).tobytes()
REQUEST = (
    b"POST /v2/models/m/infer HTTP/1.1\r\nInference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n"
    % (len(TEXT), len(BODY))
) + BODY


LIMITS = HttpLimits(1000, 1000, 10, 60.0, 60.0)


class Site:
    """A model and connections to it, one call of which may wait when it has used up what it may use."""

    def __init__(self) -> None:
        registry = Registry()
        registry.ready = True
        self.record: ModelRecord = registry.record("m")
        self.live(1)
        self.executor = Dispatcher(Workers(1), 4, 10**6)
        plane = DataPlane(registry, self.executor, 30.0)
        nothing = cast("Any", None)
        routes = Routes(plane, nothing, lambda *_: None, 1000, nothing, Operators())
        self._handle = routes.handle
        self._connections: Connections[HttpConnection] = Connections()

    def live(self, version: int, outputs: int = 2, accuracy: float | None = None) -> None:
        session = Session(onnx_models.mlp((3, 4, outputs), seed=version))
        session.inline_elements = 100
        session.accuracy = accuracy
        self.record.flip(LoadedVersion("m", version, session, self.record.account, self.record.statistics_of(version)))

    def connection(self) -> tuple[HttpConnection, Transport]:
        transport = Transport()
        connection = HttpConnection(self._handle, LIMITS, ByteBudget(10_000), self._connections)
        connection.connection_made(cast("asyncio.Transport", transport))
        return connection, transport


async def asked(connection: HttpConnection, times: int = 1) -> None:
    for _ in range(times):
        connection.data_received(REQUEST)
        for _ in range(3):
            await asyncio.sleep(0)


@pytest.mark.parametrize("outputs", [2, 700])
async def test_an_answer_says_how_accurate_its_version_is_on_both_ways(outputs: int) -> None:
    site = Site()
    site.live(2, outputs, accuracy=0.5)
    connection, transport = site.connection()
    await asked(connection, 2)
    assert b'"parameters":{"accuracy":0.5}' in transport.written[0]
    assert transport.written[0] == transport.written[1]


async def test_a_swap_is_seen_by_the_next_request_of_a_connection_that_keeps_asking() -> None:
    site = Site()
    connection, transport = site.connection()
    await asked(connection, 2)
    site.live(2)
    await asked(connection, 2)
    assert [b'"model_version":"1"' in answer for answer in transport.written] == [True, True, False, False]
    assert transport.written[0] == transport.written[1]
    assert transport.written[2] == transport.written[3] != transport.written[0]


async def test_a_request_of_a_kind_seen_before_is_refused_unread_and_counted() -> None:
    site = Site()
    asking = [site.connection() for _ in range(3)]
    for connection, _ in asking:
        await asked(connection)  # each has one good answer, and asks the same from here on
    site.record.account.declare(ModelShare(cpu_cap_cores=1e-9), time.perf_counter())
    site.record.account.charge(1.0)
    for connection, _ in asking:
        await asked(connection)
    waiting, *refused = [transport.written for _, transport in asking]
    assert len(waiting) == 1
    for answers in refused:
        assert answers[1].startswith(b"HTTP/1.1 503 ")
        assert b"\r\nRetry-After: 1\r\n" in answers[1]
        assert b'"error":"more requests are waiting' in answers[1]
    account = site.record.account
    assert (account.requests, account.delays.answers, account.delays.failures) == (6, 3, 2)
    assert site.record.statistics_of(1).failures["REJECTED"] == 2
    site.executor.close()


async def test_a_connection_that_is_to_end_ends_with_its_next_answer() -> None:
    connection, transport = Site().connection()
    await asked(connection)
    connection.close_with_next_answer()
    await asked(connection)
    first, last, *_ = transport.written
    assert last == first.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")


@pytest.mark.parametrize("change", [(b"FP32", b"FP64"), (b"[1,3]", b"[3,1]"), (b'"x"', b'"z"')])
async def test_what_is_nearly_the_same_is_looked_at(change: tuple[bytes, bytes]) -> None:
    connection, transport = Site().connection()
    await asked(connection)
    connection.data_received(REQUEST.replace(*change))
    assert transport.written[1].startswith(b"HTTP/1.1 400 ")
    await asked(connection)
    assert transport.written[2] == transport.written[0]


PLAIN = b'{"name":"x","datatype":"FP32","shape":[1,3],"data":[1,2,3]}'


@pytest.mark.parametrize("body", [b'{"id":"%b","inputs":[%b]}', b'{"inputs":[%b],"id":"%b"}', b'{"inputs":[%b]}'])
@pytest.mark.parametrize("data", [b"[1,2,3]", b"[[1,2,3]]", b"[ [ [1,2,3] ] ]"])
async def test_requests_that_differ_in_id_and_numbers_are_not_read_in_full_again(
    body: bytes, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, transport = Site().connection()
    read_in_full: list[object] = []

    def decode(*given: Any) -> Any:
        read_in_full.append(given)
        return decode_request(*given)

    monkeypatch.setattr(routes, "decode_request", decode)
    for number, request_id in enumerate([b"a", b"b", b"other", b"1-2 3", b"b"]):
        tensor = PLAIN.replace(b"[1,2,3]", data.replace(b"3", b"%d" % number))
        parts = {1: (tensor,), 2: (request_id, tensor) if body.startswith(b'{"id"') else (tensor, request_id)}
        content = body % parts[body.count(b"%b")]
        connection.data_received(
            b"POST /v2/models/m/infer HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content)
        )
        for _ in range(3):
            await asyncio.sleep(0)
        assert (b'],"id":"%b"}' % request_id in transport.written[-1]) is (b'"id"' in body)
    assert len(transport.written) == 5
    assert len(read_in_full) == 1
    assert len({answer.split(b'"data":')[1][:20] for answer in transport.written}) == 5
