"""The form that asks an endpoint: what the inference server on the broker's machine says, in time and within bounds."""

from __future__ import annotations

import contextlib
import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from testing.brokers import node_token, running_broker, tenant_of, tenant_token
from testing.browsers import Answer, Browser, browser_of
from testing.scripted_agent import ScriptedAgent
from tiercel.broker.dashboard import asking

QUESTION = {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1.0]}]}


@contextlib.asynccontextmanager
async def answering(status: int, body: bytes) -> AsyncIterator[tuple[str, list[web.Request]]]:
    """What answers as an inference server would, where it is, and what it was asked."""
    asked: list[web.Request] = []

    async def respond(request: web.Request) -> web.Response:
        await request.read()
        asked.append(request)
        return web.Response(status=status, body=body, headers={"Location": "http://example.com/"})

    app = web.Application(client_max_size=8 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"{host}:{port}", asked
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def browser_before(state_dir: Path, serving: str) -> AsyncIterator[Browser]:
    """A browser of Alice's, where the node here says that its inference server is at an address."""
    async with running_broker(state_dir) as broker:
        agent = ScriptedAgent(node_token(state_dir), "n1", serving=(serving, serving))
        async with (
            agent.connected(broker.nodes_address),
            tenant_of(broker.broker_address, tenant_token(state_dir)) as alice,
            browser_of(broker.addresses["dashboard"], tenant_token(state_dir)) as browser,
        ):
            await alice.submit("digits")
            yield browser


async def ask(state_dir: Path, status: int, body: bytes) -> tuple[Answer, list[web.Request]]:
    async with answering(status, body) as (serving, asked), browser_before(state_dir, serving) as browser:
        return await browser.post("endpoints/digits/infer", QUESTION, headers={"X-Tiercel-Key": "a-key"}), asked


async def test_what_the_inference_server_says_comes_back_with_how_long_it_took(tmp_path: Path) -> None:
    answer, asked = await ask(tmp_path, 200, b'{"outputs": []}')
    assert (answer.status, answer.content) == (200, {"outputs": []})
    assert float(answer.headers["X-Tiercel-Milliseconds"]) > 0
    assert [(each.method, each.path) for each in asked] == [("POST", "/v2/models/digits/infer")]
    assert asked[0].headers["Authorization"] == "Bearer a-key"
    assert tenant_token(tmp_path) not in str(asked[0].headers)


@pytest.mark.parametrize(
    ("said", "body", "status", "code"),
    [
        (400, b'{"error": "x is missing"}', 400, "invalid_request"),
        (401, b'{"error": "no key"}', 401, "not_authenticated"),
        (503, b'{"error": "no version answers"}', 503, "unavailable"),
        (502, b"<html>", 503, "unavailable"),
        (302, b"", 400, "invalid_request"),
        (200, b"1" * 200, 413, "too_large"),
    ],
)
async def test_what_it_refuses_is_told_as_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: int, body: bytes, status: int, code: str
) -> None:
    monkeypatch.setattr(asking, "MOST_ANSWER_BYTES", 100)
    told, asked = await ask(tmp_path, said, body)
    assert (told.status, told.code, len(asked)) == (status, code, 1)


@pytest.mark.parametrize(
    ("said", "body", "content"),
    [(200, b'{"canary": {"state": "RUNNING"}}', {"canary": {"state": "RUNNING"}}), (404, b"{}", {"canary": None})],
)
async def test_the_trial_of_a_newer_version_is_told_and_none_where_none_is_known(
    tmp_path: Path, said: int, body: bytes, content: object
) -> None:
    async with answering(said, body) as (serving, asked), browser_before(tmp_path, serving) as browser:
        answer = await browser.get("endpoints/digits/canary")
    assert (answer.status, answer.content) == (200, content)
    assert [(each.method, each.path) for each in asked] == [("GET", "/v2/models/digits/canary")]


async def test_questions_are_of_a_size_that_an_image_has_and_no_larger(tmp_path: Path) -> None:
    async with answering(200, b"{}") as (serving, _), browser_before(tmp_path, serving) as browser:
        fits, too_large = b"1" * (2 * 1024 * 1024), b"1" * (5 * 1024 * 1024)
        for body, status in ((fits, 200), (too_large, 413)):
            answer = await browser.ask("POST", "/api/v1/endpoints/digits/infer", data=io.BytesIO(body))
            assert answer.status == status
