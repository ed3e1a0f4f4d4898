from __future__ import annotations

import pytest

from tiercel.core.errors import NotFoundError
from tiercel.serving.rest.messages import HttpRefusedError
from tiercel.serving.rest.table import RouteTable


def table() -> RouteTable[str]:
    found: RouteTable[str] = RouteTable()
    found.add("GET", "/v2", "about")
    found.add("GET", "/v2/models/{model}", "metadata")
    found.add("GET", "/v2/models/stats", "all statistics")
    found.add("POST", "/v2/models/{model}/versions/{version}/infer", "infer")
    found.add("GET", "/{x}/y", "any")
    found.add("POST", "/{x}/y", "post")
    return found


@pytest.mark.parametrize(
    ("method", "target", "handler", "parameters"),
    [
        (b"GET", b"/v2", "about", {}),
        (b"HEAD", b"/v2?x=1", "about", {}),
        (b"GET", b"/v2/models/m", "metadata", {"model": "m"}),
        (b"GET", b"/v2/models/", "metadata", {"model": ""}),
        (b"GET", b"/v2/models/stats", "all statistics", {}),
        (b"POST", b"/v2/models/a%2Fb%20c/versions/3/infer?a/b", "infer", {"model": "a/b c", "version": "3"}),
        (b"POST", b"/%C3%A9/y", "post", {"x": "é"}),
        (b"GET", b"http://host:80/v2", "about", {}),
    ],
)
def test_what_requests_lead_to(method: bytes, target: bytes, handler: str, parameters: dict[str, str]) -> None:
    found = table().find(method, target)
    assert (found.handler, found.parameters) == (handler, parameters)


@pytest.mark.parametrize(
    "target", [b"/", b"", b"*", b"/v1", b"/v2/", b"/v2/models", b"/V2", b"/%ff", b"/\xff", b"http://[/v2"]
)
def test_there_is_nothing_elsewhere(target: bytes) -> None:
    with pytest.raises(NotFoundError):
        table().find(b"GET", target)


@pytest.mark.parametrize(
    ("method", "target", "allowed"),
    [
        (b"POST", b"/v2", "GET, HEAD"),
        (b"GET", b"/v2/models/m/versions/1/infer", "POST"),
        (b"X", b"/a/y", "GET, HEAD, POST"),
    ],
)
def test_the_method_must_fit(method: bytes, target: bytes, allowed: str) -> None:
    with pytest.raises(HttpRefusedError) as caught:
        table().find(method, target)
    assert (caught.value.http_status, caught.value.headers) == (405, f"Allow: {allowed}\r\n".encode())


def test_an_address_has_one_handler_and_what_is_added_late_is_found() -> None:
    routes = table()
    with pytest.raises(NotFoundError):
        routes.find(b"GET", b"/metrics")
    routes.add("GET", "/metrics", "metrics")
    assert routes.find(b"GET", b"/metrics").handler == "metrics"
    with pytest.raises(ValueError, match="GET /metrics has a handler already"):
        routes.add("GET", "/metrics", "others")
