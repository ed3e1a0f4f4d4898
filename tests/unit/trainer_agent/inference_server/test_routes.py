"""The table of who answers for which endpoint, as the agent leaves it for the inference server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testing.until import until
from tiercel.core.routes import Backend, Route, RouteFile, Routes
from tiercel.core.storage import from_json
from tiercel.core.wire import to_proto
from tiercel.trainer_agent.connection.address import DialError
from tiercel.trainer_agent.inference_server.routes import RouteKeeper, machine_token
from tiercel.v1 import nodes_pb2, routes_pb2

ELSEWHERE = Routes((Route("digits", (Backend("n1", 1, http="127.0.0.1:1"), Backend("n2", 1, http="127.0.0.1:2"))),))


@pytest.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[RouteKeeper]:
    keeper = RouteKeeper(tmp_path / "routes.json", "n1", lambda: "secret")
    running = asyncio.create_task(keeper.run())
    yield keeper
    running.cancel()


async def test_the_newest_table_is_in_a_private_file(keeper: RouteKeeper, tmp_path: Path) -> None:
    path = tmp_path / "routes.json"
    keeper.want(Routes())
    keeper.want(ELSEWHERE)
    keeper.let_go({"digits"})
    await keeper.wait_elsewhere("digits", 10.0)
    assert from_json(RouteFile, path.read_text()) == RouteFile("n1", "secret", ELSEWHERE)
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.stat().st_ino
    keeper.want(ELSEWHERE)
    await asyncio.sleep(0.05)
    assert path.stat().st_ino == before


async def test_what_only_answers_here_or_is_to_stop_is_not_elsewhere(keeper: RouteKeeper, tmp_path: Path) -> None:
    going = Backend("n2", 1, http="127.0.0.1:2", draining=True)
    keeper.want(Routes((Route("digits", (Backend("n1", 1, http="127.0.0.1:1"), going)),)))
    keeper.let_go({"digits", "other"})
    await until((tmp_path / "routes.json").exists)
    await keeper.wait_elsewhere("digits", 0.1)
    assert not keeper.answers_elsewhere("digits")
    assert not keeper.answers_elsewhere("other")


async def test_what_answers_here_waits_until_all_nodes_know_who_does_in_its_place(keeper: RouteKeeper) -> None:
    keeper.ingest(nodes_pb2.WantedState(routes=to_proto(ELSEWHERE, routes_pb2.Routes)))
    waiting = asyncio.create_task(keeper.wait_elsewhere("digits", 20.0))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    keeper.ingest(nodes_pb2.WantedState(answered_elsewhere=["digits"]))
    async with asyncio.timeout(90):
        await waiting
    assert keeper.answers_elsewhere("digits")
    keeper.ingest(nodes_pb2.WantedState())
    assert not keeper.answers_elsewhere("digits"), "it left once, came back and leaves again"


async def test_a_table_that_cannot_be_written_is_written_later_and_that_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tiercel.trainer_agent.inference_server.routes._AGAIN_SECONDS", 0.01)
    answers = [DialError("there is no token yet")] * 3

    def token() -> str:
        if answers:
            raise answers.pop()
        return ""

    keeper = RouteKeeper(tmp_path / "routes.json", "n1", token)
    running = asyncio.create_task(keeper.run())
    keeper.let_go({"digits"})
    keeper.want(ELSEWHERE)
    await keeper.wait_elsewhere("digits", 10.0)
    assert keeper.answers_elsewhere("digits")
    assert [each.message for each in caplog.records] == [
        "the table of who answers for which endpoint cannot be written: there is no token yet"
    ]
    running.cancel()


def test_servers_of_a_machine_know_each_other_by_what_only_its_agents_can_make() -> None:
    assert machine_token("") == ""
    assert machine_token("a") != machine_token("b")
    assert "secret" not in machine_token("secret")
