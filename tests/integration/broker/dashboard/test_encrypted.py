"""The dashboard for others: TLS 1.3 with the certificate of the other doors, by the names of this machine alone."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from testing.brokers import running_broker, tenant_token
from testing.browsers import Browser
from testing.membership import WIDE, operator_of
from tiercel.broker.client.authority import finish_rotation, rotate_authority
from tiercel.broker.client.connection import Connection
from tiercel.broker.client.dashboard import create_sign_in_link
from tiercel.broker.client.options import ClientOptions
from tiercel.core.trust.trust import Trust


@contextlib.asynccontextmanager
async def browser_that_believes(address: str, authority: str) -> AsyncIterator[Browser]:
    context = ssl.create_default_context(cadata=authority)
    jar = aiohttp.CookieJar(unsafe=True)
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(cookie_jar=jar, connector=connector) as session:
        yield Browser(session, f"https://{address}")


async def test_others_come_by_tls_and_by_a_name_of_this_machine(tmp_path: Path) -> None:
    async with running_broker(tmp_path, listen=WIDE, listen_names=("box.example",)) as broker:
        here = broker.addresses["broker_tls"].replace("box.example", WIDE)  # which no name server knows
        trust = Trust(pin=broker.addresses["pin"])
        connection = await Connection.open(here, tenant_token(tmp_path), ClientOptions(), trust)
        try:
            link = await create_sign_in_link(connection)
        finally:
            await connection.close()
        port = broker.addresses["dashboard_tls"].rpartition(":")[2]
        assert broker.addresses["dashboard_tls"] == f"box.example:{port}"
        begin, _, code = link.url_elsewhere.partition("/#/sign-in/")
        assert begin == f"https://box.example:{port}"
        authority = (tmp_path / "authority.pem").read_text()
        async with browser_that_believes(f"{WIDE}:{port}", authority) as browser:
            answer = await browser.post("session", {"code": code}, headers={"Origin": browser.url})
            assert answer.status == 200
            cookie = answer.headers["Set-Cookie"]
            assert cookie.startswith(f"__Host-tiercel-{port}=")
            assert {"Secure", "HttpOnly", "Path=/", "SameSite=Strict"} <= set(cookie.split("; "))
            assert answer.headers["Strict-Transport-Security"]
            assert (await browser.get("session", headers={"Host": f"box.example:{port}"})).status == 200
            assert (await browser.get("session", headers={"Host": "evil.example"})).status == 421
            # A page in the clear on this name is another site.
            assert (await browser.post("session", headers={"Origin": f"http://{WIDE}:{port}"})).status == 403


async def test_nothing_older_gets_in_and_a_new_authority_is_shown_without_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path, listen=WIDE) as broker, operator_of(broker, tmp_path) as operator:
        address, before = broker.addresses["dashboard_tls"], (tmp_path / "authority.pem").read_text()
        old = ssl.create_default_context(cadata=before)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientConnectionError):
                await session.get(f"https://{address}/", ssl=old)
        async with browser_that_believes(address, before) as browser:
            assert (await browser.get("session")).status == 401
        await rotate_authority(operator)
        await finish_rotation(operator, force=True)
        after = (tmp_path / "authority.pem").read_text()
        async with browser_that_believes(address, after) as browser:
            assert (await browser.get("session")).status == 401
