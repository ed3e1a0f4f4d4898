"""The door where the node's numbers are told, over real sockets."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest

from tiercel.broker.trust.authority import Authority
from tiercel.core.addresses import split_address
from tiercel.core.errors import SetupError
from tiercel.core.prometheus import Family
from tiercel.core.trust.certificates import to_pem
from tiercel.trainer_agent.metrics import door
from tiercel.trainer_agent.metrics.door import MOST_CONNECTIONS, MetricsPlace, metrics_door
from tiercel.trainer_agent.supervision import Supervisor

TOKEN = "t" * 32


@asynccontextmanager
async def opened(place: MetricsPlace) -> AsyncIterator[str]:
    async with Supervisor() as tasks, metrics_door(place, lambda: [Family("x", "Words", [({}, 1)])], tasks) as address:
        yield address


async def asked(
    url: str, headers: Mapping[str, str] | None = None, context: ssl.SSLContext | bool = True
) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers, ssl=context) as answer:
        return answer.status, await answer.text()


async def test_whoever_is_on_this_machine_is_told_but_no_page_of_another_name() -> None:
    async with opened(MetricsPlace("127.0.0.1", 0)) as address:
        status, text = await asked(f"http://{address}/metrics")
        assert (status, text) == (200, "# HELP x Words.\n# TYPE x gauge\nx 1.0\n")
        assert (await asked(f"http://{address}/metrics", {"Host": "evil.example"}))[0] == 421
        assert (await asked(f"http://{address}/"))[0] == 404


async def test_with_a_token_nobody_else_is_told_and_it_may_be_changed(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    async with opened(MetricsPlace("127.0.0.1", 0, file)) as address:
        url = f"http://{address}/metrics"
        assert [(await asked(url, {"Authorization": each}))[0] for each in (f"Bearer {TOKEN}", TOKEN, "")] == [
            *(200, 401, 401)
        ]
        file.write_text("u" * 32)
        assert (await asked(url, {"Authorization": f"Bearer {TOKEN}"}))[0] == 401
        file.write_text("")
        assert (await asked(url, {"Authorization": "Bearer "}))[0] == 401


async def test_for_others_it_is_encrypted_and_shows_a_renewed_certificate(tmp_path: Path) -> None:
    now, token, identity = datetime.now(UTC), tmp_path / "token", tmp_path / "identity"
    token.write_text(TOKEN)
    contexts = []
    for authority in (Authority.create(now), Authority.create(now)):
        shown = authority.issue_to_broker(["127.0.0.1"], now).to_file()
        contexts.append((shown, ssl.create_default_context(cadata=to_pem(authority.certificate).decode())))
    identity.write_bytes(contexts[0][0])
    async with opened(MetricsPlace("127.0.0.1", 0, token, identity)) as address:
        for shown, context in contexts:
            identity.write_bytes(shown)
            said = await asked(f"https://{address}/metrics", {"Authorization": f"Bearer {TOKEN}"}, context)
            assert said[0] == 200
        # In the clear nobody is told anything.
        with pytest.raises(aiohttp.ClientError):
            await asked(f"http://{address}/metrics", {"Authorization": f"Bearer {TOKEN}"})


async def test_who_says_nothing_gives_way_to_who_asks_and_last_who_has_been_told() -> None:
    async with opened(MetricsPlace("127.0.0.1", 0)) as address, aiohttp.ClientSession() as prometheus:
        host, port = split_address(address)
        url = f"http://{address}/metrics"
        async with prometheus.get(url) as answer:
            assert answer.status == 200
        crowd = [await asyncio.open_connection(host, port) for _ in range(3 * MOST_CONNECTIONS)]
        ends = [asyncio.create_task(reader.read()) for reader, _ in crowd]
        await asyncio.wait(ends[: 2 * MOST_CONNECTIONS + 1])
        assert not any(each.done() for each in ends[2 * MOST_CONNECTIONS + 1 :])
        assert (await asked(url))[0] == 200
        async with prometheus.get(url) as answer:
            assert answer.status == 200
        # Another one came for the scrape in between, and none for Prometheus, whose connection has stayed.
        assert sum(each.done() for each in ends) == 2 * MOST_CONNECTIONS + 2
        for _, writer in crowd:
            writer.close()
        await asyncio.wait(ends)


async def test_who_does_not_go_on_to_encrypt_gives_way_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "_HANDSHAKE_SECONDS", 600.0)
    now, token, identity = datetime.now(UTC), tmp_path / "token", tmp_path / "identity"
    token.write_text(TOKEN)
    authority = Authority.create(now)
    identity.write_bytes(authority.issue_to_broker(["127.0.0.1"], now).to_file())
    context = ssl.create_default_context(cadata=to_pem(authority.certificate).decode())
    async with opened(MetricsPlace("127.0.0.1", 0, token, identity)) as address:
        host, port = split_address(address)
        crowd = [await asyncio.open_connection(host, port) for _ in range(2 * MOST_CONNECTIONS)]
        said = await asked(f"https://{address}/metrics", {"Authorization": f"Bearer {TOKEN}"}, context)
        assert said[0] == 200
        for reader, _ in crowd[: MOST_CONNECTIONS + 1]:
            assert await reader.read() == b""
        for _, writer in crowd:
            writer.close()


async def test_who_says_nothing_for_long_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "_IDLE_SECONDS", 0.05)
    async with opened(MetricsPlace("127.0.0.1", 0)) as address:
        for said in (b"", b"GET /metrics HTTP/1.1\r\nHost: 127.0", b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"):
            reader, writer = await asyncio.open_connection(*split_address(address))
            writer.write(said)
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 200") == said.endswith(b"\r\n\r\n")
            writer.close()


async def test_a_port_that_is_taken_and_a_token_that_is_none_are_said(tmp_path: Path) -> None:
    short = tmp_path / "token"
    short.write_text("abc\n")
    async with opened(MetricsPlace("127.0.0.1", 0)) as address, Supervisor() as tasks:
        for place, words in (
            (MetricsPlace("127.0.0.1", split_address(address)[1]), "--metrics-listen: nothing can listen"),
            (MetricsPlace("127.0.0.1", 0, short), "fewer than 16 characters"),
            (MetricsPlace("127.0.0.1", 0, tmp_path / "none"), "--metrics-token-file: .* cannot be read"),
            (MetricsPlace("127.0.0.1", 0, None, short), "does not have a key and certificates"),
        ):
            with pytest.raises(SetupError, match=words):
                async with metrics_door(place, list, tasks):
                    pass
