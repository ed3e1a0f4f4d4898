"""Who gets into the dashboard of a real broker, how, and for how long."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.brokers import node_token, running_broker, tenant_token
from testing.browsers import API, browser_of
from testing.membership import operator_of
from tiercel.broker.client.connection import Connection
from tiercel.broker.client.dashboard import create_sign_in_link
from tiercel.broker.client.options import ClientOptions
from tiercel.broker.client.tokens import create_token, revoke_token
from tiercel.broker.server import Broker
from tiercel.core.roles import Role
from tiercel.core.trust.trust import Trust


async def code_of(broker: Broker, token: str) -> str:
    """The code of a link for the bearer of a token."""
    connection = await Connection.open(broker.broker_address, token, ClientOptions(), Trust())
    try:
        link = await create_sign_in_link(connection)
    finally:
        await connection.close()
    begin = f"http://{broker.addresses['dashboard']}/#/sign-in/"
    assert link.url.startswith(begin)
    assert link.url_elsewhere == ""
    return link.url.removeprefix(begin)


async def test_a_link_signs_in_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, browser_of(broker.addresses["dashboard"]) as browser:
        assert (await browser.get("session")).code == "not_authenticated"
        code = await code_of(broker, tenant_token(tmp_path))
        answer = await browser.post("session", {"code": code})
        assert (answer.status, answer.content["tenant"], answer.content["role"]) == (200, "alice", "submitter")
        cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert code not in cookie
        assert tenant_token(tmp_path) not in cookie
        assert (await browser.get("session")).content == answer.content
        async with browser_of(broker.addresses["dashboard"]) as other:
            replayed = await other.post("session", {"code": code})
            assert (replayed.status, replayed.code) == (401, "not_authenticated")
            assert "used before" in replayed.content["message"]
        assert (await browser.ask("DELETE", f"{API}session")).status == 200
        assert (await browser.get("status")).status == 401


async def test_who_is_signed_in_stays_so_when_the_broker_starts_anew(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, browser_of(broker.addresses["dashboard"]) as browser:
        await browser.sign_in(tenant_token(tmp_path))
        port = int(broker.addresses["dashboard"].rpartition(":")[2])
        code = await code_of(broker, tenant_token(tmp_path))
        async with browser.session.get(f"{browser.url}{API}events") as stream:
            await stream.content.readline()
            await broker.__aexit__(None, None, None)
            await stream.content.read()  # it ends, and no browser waits for it
        async with running_broker(tmp_path, dashboard_port=port):
            assert (await browser.get("session")).content["tenant"] == "alice"
            assert (await browser.post("session", {"code": code})).status == 401  # links are of one life
            async with browser.session.get(
                f"{browser.url}{API}events", headers={"Last-Event-ID": "0123abcd-7"}
            ) as anew:
                told = b"".join([await anew.content.readline() for _ in range(4)])
                assert b"event: reset\n" in told


@pytest.mark.parametrize(
    "body", [{}, {"code": "x", "token": "y"}, {"token": 5}, {"token": "\ud800"}, {"token": "x" * 9_000}, [], "text"]
)
async def test_what_is_neither_a_code_nor_a_token_is_refused(tmp_path: Path, body: object) -> None:
    async with running_broker(tmp_path) as broker, browser_of(broker.addresses["dashboard"]) as browser:
        assert (await browser.post("session", body)).status == 400


async def test_only_people_sign_in_and_programs_bring_their_token(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, browser_of(broker.addresses["dashboard"]) as browser:
        for token, code in ((node_token(tmp_path), "not_allowed"), ("nobody-has-this-token", "not_authenticated")):
            assert (await browser.post("session", {"token": token})).code == code
        bearer = {"Authorization": f"Bearer {tenant_token(tmp_path, 'bob')}"}
        assert (await browser.get("session", headers=bearer)).content["tenant"] == "bob"
        await browser.sign_in(tenant_token(tmp_path))
        # One or the other: a wrong token is not made up for by a cookie.
        assert (await browser.get("session", headers=bearer)).content["tenant"] == "bob"
        assert (await browser.get("session", headers={"Authorization": "Bearer wrong-token-of-nobody"})).status == 401
        assert (await browser.get("session", headers={"Authorization": "Basic YTpi"})).status == 401


async def test_a_session_ends_with_the_token_behind_it(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path) as broker,
        operator_of(broker, tmp_path) as operator,
        browser_of(broker.addresses["dashboard"]) as browser,
    ):
        token, issued = await create_token(operator, "eyes", tenant="alice", role=Role.VIEWER, seconds=0)
        await browser.post("session", {"code": await code_of(broker, token)})
        assert (await browser.get("session")).content["role"] == "viewer"
        async with browser.session.get(f"{browser.url}{API}events") as stream:
            assert await stream.content.readline() == b"retry: 500\n"
            await revoke_token(operator, issued.id)
            await stream.content.read()  # the stream ends within a second
        assert (await browser.get("session")).status == 401
        assert (await browser.post("session", {"token": token})).status == 401
