"""The form that asks an endpoint: what the inference server on the broker's machine says, in time and within bounds."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from testing.brokers import node_token, running_broker, tenant_of, tenant_token
from testing.browsers import Answer, Browser, browser_of
from testing.product_use import JOB_SECONDS
from testing.scripted_agent import ScriptedAgent
from tiercel.broker.dashboard import asking

QUESTION = {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1.0]}]}


@contextlib.asynccontextmanager
async def answering(*answers: tuple[int, bytes]) -> AsyncIterator[tuple[str, list[web.Request]]]:
    """What answers so, in turn, as an inference server would; where it is, and what it was asked."""
    asked: list[web.Request] = []

    async def respond(request: web.Request) -> web.Response:
        await request.read()
        asked.append(request)
        status, body = answers[(len(asked) - 1) % len(answers)]
        return web.Response(status=status, body=body, headers={"Location": "http://example.com/"})

    async with responding(respond) as address:
        yield address, asked


@contextlib.asynccontextmanager
async def responding(respond: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """What answers everything by a function, and where it is."""
    app = web.Application(client_max_size=8 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", respond)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"{host}:{port}"
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


async def infer(browser: Browser) -> Answer:
    return await browser.post("endpoints/digits/infer", QUESTION, headers={"X-Tiercel-Key": "a-key"})


async def test_what_the_inference_server_says_comes_back_with_how_long_it_took(tmp_path: Path) -> None:
    said = ((200, b'{"outputs": []}'), (200, b'{"canary": {"state": "RUNNING"}}'), (404, b"{}"))
    async with answering(*said) as (serving, asked), browser_before(tmp_path, serving) as browser:
        answer = await infer(browser)
        trials = [(await browser.get("endpoints/digits/canary")).content for _ in range(2)]
    assert (answer.status, answer.content) == (200, {"outputs": []})
    assert float(answer.headers["X-Tiercel-Milliseconds"]) > 0
    assert asked[0].headers["Authorization"] == "Bearer a-key"
    assert tenant_token(tmp_path) not in str(asked[0].headers)
    assert trials == [{"canary": {"state": "RUNNING"}}, {"canary": None}], "none where none is known"
    paths = [(each.method, each.path) for each in asked]
    assert paths == [("POST", "/v2/models/digits/infer"), *[("GET", "/v2/models/digits/canary")] * 2]


REFUSALS = {
    (400, b'{"error": "x is missing"}'): (400, "invalid_request"),
    (401, b'{"error": "no key"}'): (403, "not_allowed"),
    (503, b'{"error": "no version answers"}'): (503, "unavailable"),
    (502, b"<html>"): (503, "unavailable"),
    (302, b""): (400, "invalid_request"),
    (200, b"1" * 200): (413, "too_large"),
}


async def test_what_it_refuses_is_told_as_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "MOST_ANSWER_BYTES", 100)
    async with answering(*REFUSALS) as (serving, asked), browser_before(tmp_path, serving) as browser:
        told = [await infer(browser) for _ in REFUSALS]
    assert [(each.status, each.code) for each in told] == [*REFUSALS.values()]
    assert len(asked) == len(REFUSALS)


async def test_tokens_are_passed_on_as_they_come_and_a_caller_who_leaves_ends_the_answer(tmp_path: Path) -> None:
    first, left = b'data: {"output_ids":[1]}\n\n', asyncio.Event()

    async def respond(request: web.Request) -> web.StreamResponse:
        if not (await request.json())["text_input"]:
            return web.json_response({"error": "the prompt has 0 tokens"}, status=400)
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(first)
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        return answer

    async with responding(respond) as serving, browser_before(tmp_path, serving) as browser:
        refused = await browser.post("endpoints/digits/generate", {"text_input": ""})
        assert (refused.status, refused.content["message"]) == (400, "the prompt has 0 tokens")
        url = f"{browser.url}/api/v1/endpoints/digits/generate"
        async with browser.session.post(url, json={"text_input": "a"}) as answer:
            assert (answer.status, answer.content_type) == (200, "text/event-stream")
            assert await answer.content.readuntil(b"\n\n") == first
        async with asyncio.timeout(JOB_SECONDS):
            await left.wait()


async def test_questions_are_of_a_size_that_an_image_has_and_no_larger(tmp_path: Path) -> None:
    async with answering((200, b"{}")) as (serving, _), browser_before(tmp_path, serving) as browser:
        fits, too_large = b"1" * (2 * 1024 * 1024), b"1" * (5 * 1024 * 1024)
        for body, status in ((fits, 200), (too_large, 413)):
            answer = await browser.ask("POST", "/api/v1/endpoints/digits/infer", data=io.BytesIO(body))
            assert answer.status == status
