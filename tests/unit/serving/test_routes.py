from __future__ import annotations

import pytest

from tiercel.serving.errors import NotFoundError
from tiercel.serving.rest.routes import Route, route


@pytest.mark.parametrize(
    ("target", "found"),
    [
        (b"/v2", Route("server")),
        (b"/v2/health/live?x=1", Route("live")),
        (b"/v2/health/ready", Route("ready")),
        (b"/v2/models/m", Route("metadata", "m")),
        (b"/v2/models/m/ready", Route("model_ready", "m")),
        (b"/v2/models/m/infer", Route("infer", "m")),
        (b"/v2/models/m/stats", Route("statistics", "m")),
        (b"/v2/models/m/versions/3", Route("metadata", "m", "3")),
        (b"/v2/models/a%2Fb/versions/3/infer", Route("infer", "a/b", "3")),
        (b"/v2/models/m%20n/versions/3/ready", Route("model_ready", "m n", "3")),
        (b"/v2/repository/index", Route("index")),
        (b"/v2/usage", Route("usage")),
        (b"/v2/shares", Route("shares")),
        (b"/v2/repository/models/m/load", Route("load", "m")),
        (b"/v2/repository/models/m/unload", Route("unload", "m")),
    ],
)
def test_routes(target: bytes, found: Route) -> None:
    assert route(target) == found


@pytest.mark.parametrize(
    "target",
    [
        b"/",
        b"",
        b"*",
        b"/v1",
        b"/v2/",
        b"/v2/models",
        b"/v2/models/m/load",
        b"/v2/models/m/versions",
        b"/%ff",
        b"/\xff",
    ],
)
def test_there_is_nothing_else(target: bytes) -> None:
    with pytest.raises(NotFoundError):
        route(target)


def test_methods() -> None:
    assert {action: Route(action).method for action in ("infer", "load", "live", "metadata", "shares")} == {
        "shares": b"POST",
        "infer": b"POST",
        "load": b"POST",
        "live": b"GET",
        "metadata": b"GET",
    }
