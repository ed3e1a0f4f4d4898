"""The client against a small server that speaks its part of the protocol."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.inference_server.client import ServedModel, ServingClient, ServingUnreachableError
from tiercel.trainer_agent.inference_server.endpoint_shares import EndpointTerms
from tiercel.trainer_agent.inference_server.endpoint_usage import ServingUsage, Totals
from tiercel.trainer_agent.inference_server.process import ServingPlaces, ensure_token
from tiercel.trainer_agent.limits.contract import CpuShare

Handler = Callable[[web.Request], Awaitable[web.Response]]


class FakeServing:
    """Answers what it was told to, in turn; the last for ever."""

    def __init__(self) -> None:
        self.answers: list[web.Response] = []
        self.paths: list[str] = []
        self.bodies: list[str] = []
        self.queries: list[str] = []
        self.authorizations: list[str | None] = []
        self.address = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.paths.append(request.path)
        self.queries.append(request.query_string)
        self.authorizations.append(request.headers.get("Authorization"))
        self.bodies.append(await request.text())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return web.Response(status=answer.status, body=answer.body)


@pytest.fixture
async def serving() -> AsyncIterator[FakeServing]:
    fake = FakeServing()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    fake.address = f"{host}:{port}"
    yield fake
    await runner.cleanup()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as open_session:
        yield open_session


async def test_loads(serving: FakeServing, session: aiohttp.ClientSession) -> None:
    serving.answers = [web.Response()]
    await ServingClient(session, lambda: serving.address).load("digits")
    assert serving.paths == ["/v2/repository/models/digits/load"]


async def test_waits_for_a_server_that_is_down_or_busy(serving: FakeServing, session: aiohttp.ClientSession) -> None:
    serving.answers = [web.Response(status=503, body=b'{"error": "busy"}'), web.Response()]
    addresses = iter(["", "127.0.0.1:1"])
    await ServingClient(session, lambda: next(addresses, serving.address)).load("digits")
    assert len(serving.paths) == 2


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (422, b'{"error": "model.onnx is no ONNX model"}', "model.onnx is no ONNX model"),
        (400, b"no JSON", "no JSON"),
        (500, b"[]", r"\[\]"),
        (500, b"", "refused the model without saying why"),
    ],
)
async def test_a_refusal_is_passed_on(
    serving: FakeServing, session: aiohttp.ClientSession, status: int, body: bytes, sentence: str
) -> None:
    serving.answers = [web.Response(status=status, body=body)]
    with pytest.raises(DeliveryFailedError, match=sentence):
        await ServingClient(session, lambda: serving.address).load("digits")
    assert len(serving.paths) == 1


async def test_gives_up_in_the_end(session: aiohttp.ClientSession) -> None:
    with pytest.raises(DeliveryFailedError, match=r"did not answer for 0 s \(it is not running\)"):
        await ServingClient(session, lambda: "", wait_seconds=0.0).load("digits")


async def test_health(serving: FakeServing, session: aiohttp.ClientSession) -> None:
    client = ServingClient(session, lambda: serving.address)
    serving.answers = [web.Response(status=503), web.Response()]
    assert not await client.is_ready(serving.address)
    assert await client.is_ready(serving.address)
    assert not await client.is_ready("127.0.0.1:1")


async def test_what_is_served(serving: FakeServing, session: aiohttp.ClientSession) -> None:
    client = ServingClient(session, lambda: serving.address)
    serving.answers = [
        web.Response(
            body=b'[{"name": "b", "version": "2", "state": "READY"}, {"name": "a", "version": "1", "state": "READY"},'
            b' {"name": "b", "version": "1", "state": "UNAVAILABLE"},'
            b' {"name": "b", "version": "5", "state": "READY", "reason": "on trial with 0.5 of the requests"},'
            b' {"name": "c", "version": "", "state": "UNAVAILABLE"},'
            b' {"name": "b", "version": "3", "state": "UNAVAILABLE", "reason": "held back: it kills"},'
            b' {"name": "b", "version": "4", "state": "LOADING", "reason": "soon"}]'
        )
    ]
    assert await client.served(serving.address) == (
        ServedModel("a", 1),
        ServedModel("b", 2),
        ServedModel("b", 3, "held back: it kills"),
    )
    for wrong in (
        web.Response(status=500),
        web.Response(body=b"{"),
        web.Response(body=b'[{"name": "b", "state": "READY"}]'),
    ):
        serving.answers = [wrong]
        with pytest.raises(ServingUnreachableError):
            await client.served(serving.address)
    with pytest.raises(ServingUnreachableError):
        await client.served("127.0.0.1:1")


async def test_what_requests_took(serving: FakeServing, session: aiohttp.ClientSession) -> None:
    client = ServingClient(session, lambda: serving.address)
    serving.answers = [
        web.Response(
            body=b'{"uptime_seconds": 2.5, "models": [{"name": "a", "requests": 3, "answers": 2, "delay_seconds": 0.5,'
            b' "cpu_seconds": 0.25, "waiting": 1}]}'
        )
    ]
    assert await client.usage(serving.address) == ServingUsage(2.5, {"a": Totals(3, 2, 0.5, 0.25)}, {"a": ()})
    for wrong in (
        web.Response(status=404),
        web.Response(body=b"{"),
        web.Response(body=b"[]"),
        web.Response(body=b'{"uptime_seconds": 1, "models": [{"name": "a"}]}'),
        web.Response(body=b'{"uptime_seconds": 1, "models": [], "loop_lag": [{}]}'),
    ):
        serving.answers = [wrong]
        with pytest.raises(ServingUnreachableError):
            await client.usage(serving.address)


async def test_delays_of_endpoints_that_were_asked_something_since(
    serving: FakeServing, session: aiohttp.ClientSession
) -> None:
    client = ServingClient(session, lambda: serving.address)
    window = {"seconds": 9.5, "answers": 4, "failures": 1, "rate": 0.4, "in_objective": 0.6, "p50": 0.1, "p95": 0.2}
    idle = {"seconds": 60.0, "answers": 0, "failures": 0, "in_objective": None, "p50": None, "p95": None, "p99": None}
    line = {"name": "a", "requests": 5, "answers": 4, "delay_seconds": 0.5, "cpu_seconds": 0.25}
    line |= {"failures": 1, "on_time": 3, "windows": [{**window, "p99": 0.3}, idle]}
    content = {"uptime_seconds": 9.0, "loop_lag": [{"seconds": 9.0, "p95": 0.004}], "models": [line]}
    serving.answers = [web.Response(body=json.dumps(content).encode())]
    usage = await client.usage(serving.address, 7.5)
    assert serving.queries == ["since=7.5"]
    assert (usage.totals["a"].failures, usage.totals["a"].on_time, usage.lag_seconds) == (1, 3, 0.004)
    lately, long = usage.windows["a"]
    assert (lately.in_objective, lately.p50_seconds, lately.p99_seconds, lately.failures) == (0.6, 0.1, 0.3, 1)
    assert not long.HasField("in_objective")
    assert not long.HasField("p95_seconds")


async def test_shares_are_declared_as_a_whole(serving: FakeServing, session: aiohttp.ClientSession) -> None:
    client = ServingClient(session, lambda: serving.address)
    serving.answers = [web.Response(), web.Response(status=400, body=b'{"error": "models.a: no"}')]
    shares = {"a": CpuShare(0.5, 1.5), "b": CpuShare(0.25)}
    await client.declare_shares(serving.address, EndpointTerms(shares, {"b": 0.02, "c": 0.5}))
    assert serving.paths == ["/v2/shares"]
    assert json.loads(serving.bodies[0]) == {
        "models": {
            "a": {"cpu_weight": 0.5, "cpu_cap_cores": 1.5},
            "b": {"cpu_weight": 0.25, "cpu_cap_cores": None, "objective_seconds": 0.02},
            "c": {"objective_seconds": 0.5},
        }
    }
    with pytest.raises(ServingUnreachableError, match=r"models\.a: no"):
        await client.declare_shares(serving.address, EndpointTerms())
    with pytest.raises(ServingUnreachableError):
        await client.declare_shares("127.0.0.1:1", EndpointTerms())


async def test_the_server_is_asked_as_an_operator(serving: FakeServing, session: aiohttp.ClientSession) -> None:
    serving.answers = [web.Response(body=b"[]")]
    tokens = ["first", "second", "third", ""]
    client = ServingClient(session, lambda: serving.address, token=lambda: tokens.pop(0))
    await client.load("digits")
    await client.declare_shares(serving.address, EndpointTerms({}, {}))
    await client.served(serving.address)
    await client.load("digits")
    assert serving.authorizations == ["Bearer first", "Bearer second", "Bearer third", None]


def test_the_token_is_made_once_for_the_agents_user_alone(tmp_path: Path) -> None:
    places = ServingPlaces(tmp_path)
    assert places.read_token() == ""
    ensure_token(places.token_file)
    token = places.read_token()
    assert len(token) >= 32
    assert places.token_file.stat().st_mode & 0o777 == 0o600
    ensure_token(places.token_file)
    assert places.read_token() == token
    places.token_file.chmod(0o644)  # somebody may have read it
    ensure_token(places.token_file)
    assert places.read_token() not in {"", token}
    assert places.token_file.stat().st_mode & 0o777 == 0o600
