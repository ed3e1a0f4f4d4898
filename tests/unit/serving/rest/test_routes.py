from __future__ import annotations

import asyncio
import gzip
from collections.abc import Coroutine
from typing import Any, cast

import orjson
import pytest

from tiercel.core.errors import CapacityExceededError, NotFoundError
from tiercel.serving.operators import Operators
from tiercel.serving.rest.compression import Inflater
from tiercel.serving.rest.head import Head
from tiercel.serving.rest.messages import ByteBudget, HttpRequest, HttpResponse, HttpStream, json_response
from tiercel.serving.rest.routes import Endpoint, Routes, body_object, from_programs_only


class Site:
    """Routes without models, and what they start and answer."""

    def __init__(self, inflater: Inflater | None = None, operators: Operators | None = None) -> None:
        operators = operators or Operators()
        self.tasks: list[Coroutine[Any, Any, None]] = []
        self.room = True
        nothing = cast("Any", None)
        plane = cast("Any", self)
        self.routes = Routes(
            plane, nothing, lambda work, _: self.tasks.append(work), 1000, nothing, operators, inflater
        )

    def check_room(self, _: str) -> None:
        if not self.room:
            raise CapacityExceededError("no room")

    def ask(self, method: bytes, target: bytes, body: bytes = b"", **headers: bytes) -> HttpResponse | None:
        answers: list[HttpResponse | HttpStream | bytes] = []
        names = {name.encode().replace(b"_", b"-"): value for name, value in headers.items()}
        self.routes.handle(HttpRequest(Head(method, target, names), body), answers.append)
        while self.tasks:
            asyncio.run(self.tasks.pop())
        if not answers:
            return None
        (answer,) = answers
        assert isinstance(answer, HttpResponse), "packed already"
        return answer


def error(response: HttpResponse | None) -> tuple[int, str]:
    assert response is not None
    return response.status, orjson.loads(response.body)["error"]


async def _later(request: HttpRequest, parameters: Any) -> HttpResponse:
    return json_response({"later": parameters["name"], **body_object(request)})


async def _refused(*_: Any) -> HttpResponse:
    raise NotFoundError("not here")


def _broken(*_: Any) -> HttpResponse:
    raise RuntimeError("a defect")


async def _broken_later(*_: Any) -> HttpResponse:
    raise RuntimeError("a defect")


def test_an_endpoint_may_answer_at_once_or_later() -> None:
    site = Site()
    site.routes.add("GET", "/now/{name}", lambda _, parameters: json_response(parameters["name"]))
    site.routes.add("POST", "/later/{name}", _later)
    at_once, later = site.ask(b"GET", b"/now/a%20b"), site.ask(b"POST", b"/later/c", b'{"x": 1}')
    assert at_once is not None
    assert later is not None
    assert (at_once.body, orjson.loads(later.body)) == (b'"a b"', {"later": "c", "x": 1})


@pytest.mark.parametrize(
    ("endpoint", "status", "message"),
    [
        (_refused, 404, "not here"),
        (_broken, 500, "the server failed; its log says more"),
        (_broken_later, 500, "the server failed; its log says more"),
        (from_programs_only(_broken), 403, "web pages may not"),
    ],
)
def test_what_an_endpoint_raises_is_the_answer(endpoint: Endpoint, status: int, message: str) -> None:
    site = Site()
    site.routes.add("POST", "/x", endpoint)
    found = error(site.ask(b"POST", b"/x", origin=b"http://page"))
    assert found[0] == status
    assert message in found[1]


@pytest.mark.parametrize("body", [b"[]", b"{", b'"x"'])
def test_a_body_must_be_an_object(body: bytes) -> None:
    site = Site()
    site.routes.add("POST", "/later/{name}", _later)
    status, message = error(site.ask(b"POST", b"/later/x", body))
    assert status == 400
    assert message.startswith("the body")


@pytest.mark.parametrize(
    ("method", "target", "status", "header"),
    [(b"GET", b"/v3", 404, b""), (b"GET", b"/v2/models/m/infer", 405, b"Allow: POST\r\n")],
)
def test_addresses_that_are_wrong(method: bytes, target: bytes, status: int, header: bytes) -> None:
    answer = Site().ask(method, target)
    assert answer is not None
    assert (answer.status, answer.headers) == (status, header)


def test_packed_bodies_are_read_where_there_is_somebody_to_unpack_them() -> None:
    site = Site()
    site.routes.add("POST", "/later/{name}", _later)
    packed = gzip.compress(b'{"x": 1}')
    assert error(site.ask(b"POST", b"/later/c", packed, content_encoding=b"gzip"))[0] == 415
    site = Site(Inflater(100, ByteBudget(10**6)))
    site.routes.add("POST", "/later/{name}", _later)
    answer = site.ask(b"POST", b"/later/c", packed, content_encoding=b"gzip")
    assert answer is not None
    assert orjson.loads(answer.body) == {"later": "c", "x": 1}
    assert error(site.ask(b"POST", b"/later/c", b"?", content_encoding=b"gzip"))[0] == 400
    plain = site.ask(b"POST", b"/later/c", b"{}", content_encoding=b"Identity")
    assert plain is not None
    assert plain.status == 200


def test_an_inference_request_needs_a_body() -> None:
    assert error(Site().ask(b"POST", b"/v2/models/m/infer"))[0] == 411


def test_nothing_is_read_when_there_is_no_room() -> None:
    site = Site()
    site.room = False
    assert error(site.ask(b"POST", b"/v2/models/m/infer", b"{")) == (503, "no room")


def test_a_request_for_another_name_is_refused_wherever_it_goes() -> None:
    site = Site()
    site.routes.add("GET", "/here", lambda *_: json_response("here"))
    for method, target in ((b"GET", b"/here"), (b"POST", b"/v2/models/m/infer"), (b"GET", b"/nowhere")):
        status, message = error(site.ask(method, target, host=b"rebound.test:8000"))
        assert (status, "'rebound.test:8000'" in message) == (421, True)
    answer = site.ask(b"GET", b"/here", host=b"127.0.0.1:8000")
    assert answer is not None
    assert answer.status == 200
