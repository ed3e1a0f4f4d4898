"""Tokens that are given out: by a real broker, with its real database, and whoever tries others."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner

from testing.brokers import Tenant, running_broker, status_of, tenant_of, tenant_token
from testing.clock import ManualClock
from testing.membership import operator_of
from tiercel.broker.access.tokens import Tokens
from tiercel.broker.actors.clock import SystemClock
from tiercel.broker.cli import app
from tiercel.broker.client.tokens import create_token, list_tokens, revoke_token
from tiercel.broker.server import Broker
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.broker.store.tokens import TokenStore
from tiercel.broker.tenancy import open_tenancy
from tiercel.core.errors import ConflictError, InvalidSpecError, NotFoundError, QuotaExceededError
from tiercel.core.issued_tokens import (
    DAY_SECONDS,
    KIND,
    MOST_FORGOTTEN,
    MOST_OF_A_TENANT,
    REMEMBERED_SECONDS,
    IssuedToken,
)
from tiercel.core.roles import Role
from tiercel.core.tokens import Token

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


async def give(
    broker: Broker, state_dir: Path, role: Role, *, tenant: str = "alice", name: str = "one", seconds: float = 0.0
) -> tuple[str, IssuedToken]:
    async with operator_of(broker, state_dir) as operator:
        return await create_token(operator, name, tenant=tenant, role=role, seconds=seconds)


async def take_back(broker: Broker, state_dir: Path, token_id: str) -> None:
    async with operator_of(broker, state_dir) as operator:
        await revoke_token(operator, token_id)


async def test_a_token_does_what_its_role_may_over_restarts_and_its_secret_is_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with running_broker(tmp_path) as broker:
        reads, issued = await give(broker, tmp_path, Role.VIEWER)
        submits, _ = await give(broker, tmp_path, Role.SUBMITTER, name="two")
        assert issued.expires_at - issued.created_at == pytest.approx(90 * DAY_SECONDS)
    async with (
        running_broker(tmp_path) as broker,
        tenant_of(broker.broker_address, reads) as viewer,
        tenant_of(broker.broker_address, submits) as submitter,
        tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice,
        tenant_of(broker.broker_address, tenant_token(tmp_path, "bob")) as bob,
    ):
        job = await submitter.submit()
        assert job.tenant == "alice"
        assert (await viewer.get(job.id)).id == (await alice.get(job.id)).id == job.id
        assert await status_of(bob.get(job.id)) == "NOT_FOUND"
        assert await status_of(viewer.submit("other")) == await status_of(viewer.cancel(job.id)) == "PERMISSION_DENIED"
        await submitter.cancel(job.id)
        async with operator_of(broker, tmp_path) as operator:
            assert [token.name for token in await list_tokens(operator)] == ["one", "two"]
            assert all(not token.sha256 for token in await list_tokens(operator))
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for text in (reads, submits):
        assert text not in caplog.text
        assert text.split("_")[3].encode() not in kept


async def test_a_revoked_token_ends_with_the_next_call_and_so_do_its_open_streams(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        text, issued = await give(broker, tmp_path, Role.VIEWER)
        async with (
            tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice,
            tenant_of(broker.broker_address, text) as viewer,
        ):
            job = await alice.submit()
            watching = asyncio.create_task(_follow(viewer))
            following = asyncio.create_task(status_of(viewer.output(job.id, follow=True)))
            still = asyncio.create_task(_follow(alice))
            await asyncio.sleep(0)
            assert await status_of(viewer.get(job.id)) == "OK"
            await take_back(broker, tmp_path, issued.id)
            assert await status_of(viewer.get(job.id)) == "UNAUTHENTICATED"
            async with asyncio.timeout(90):
                assert {*await asyncio.gather(watching, following)} == {"UNAUTHENTICATED"}
            assert not still.done()
            still.cancel()
            await take_back(broker, tmp_path, issued.id)  # once more changes nothing


async def _follow(tenant: Tenant) -> str:
    try:
        async for _ in tenant.events():
            pass
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "over"


async def test_a_token_runs_out_by_the_clock_and_its_open_streams_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shift = [0.0]
    monkeypatch.setattr(SystemClock, "now", lambda _self: time.time() + shift[0])
    async with running_broker(tmp_path) as broker:
        text, _ = await give(broker, tmp_path, Role.VIEWER, seconds=3600.0)
        async with tenant_of(broker.broker_address, text) as viewer:
            watching = asyncio.create_task(_follow(viewer))
            shift[0] = 3590.0
            assert await status_of(viewer.nodes()) == "OK"
            shift[0] = 3601.0
            with pytest.raises(grpc.aio.AioRpcError, match=r"ran out on .* ask the broker's operator") as refused:
                await viewer.nodes()
            assert refused.value.code() is UNAUTHENTICATED
            async with asyncio.timeout(90):
                assert await watching == "UNAUTHENTICATED"


async def test_what_is_no_token_gets_nobody_in_however_often(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "a") as broker, running_broker(tmp_path / "b") as other:
        text, issued = await give(broker, tmp_path / "a", Role.SUBMITTER)
        elsewhere, _ = await give(other, tmp_path / "b", Role.SUBMITTER)
        drawn = Token.draw(KIND)
        bad = [
            elsewhere,
            text[:-1],
            text.swapcase(),
            text + text,
            "x" * 7_000,
            Token(KIND, issued.id, drawn.secret).to_text(),
            f"{text}, {text}",
            f"Bearer {text}",
        ]
        async with grpc.aio.insecure_channel(broker.broker_address) as channel:
            for each in bad:
                assert await status_of(Tenant(channel, each).nodes()) == "UNAUTHENTICATED", each
            guesses = [Tenant(channel, Token.draw(KIND).to_text()) for _ in range(1_000)]
            assert {await status_of(guess.nodes()) for guess in guesses} == {"UNAUTHENTICATED"}
            assert await status_of(Tenant(channel, text).nodes()) == "OK"


async def test_there_is_a_bound_names_are_told_apart_and_old_ones_are_forgotten(tmp_path: Path) -> None:
    clock = ManualClock(1_800_000_000.0)
    tenancy = open_tenancy(tmp_path, ["alice", "bob"], clock.now)
    async with Store(sqlite_url(tmp_path / "broker.sqlite")) as store:
        tokens = Tokens(TokenStore(store), tenancy, clock)
        await tokens.start()
        _, first = await tokens.create("n0", "alice", Role.VIEWER, 3600.0)
        with pytest.raises(ConflictError, match="there is a token 'n0' already"):
            await tokens.create("n0", "alice", Role.SUBMITTER, 3600.0)
        await tokens.create("n0", "bob", Role.VIEWER, 3600.0)
        with pytest.raises(InvalidSpecError, match="there is no tenant 'carol'"):
            await tokens.create("n", "carol", Role.VIEWER, 3600.0)
        with pytest.raises(NotFoundError, match="there is no token 'nobody'"):
            await tokens.revoke("nobody")
        for number in range(1, MOST_OF_A_TENANT):
            await tokens.create(f"n{number}", "alice", Role.VIEWER, 3600.0)
        with pytest.raises(QuotaExceededError, match="alice has 100 tokens"):
            await tokens.create("more", "alice", Role.VIEWER, 3600.0)
        await tokens.revoke(first.id)
        await tokens.create("n0", "alice", Role.VIEWER, 3600.0)
        # However many are made and revoked, no more than a bound is kept, here and in the database.
        for _ in range(MOST_FORGOTTEN + 5):
            _, token = await tokens.create("again", "bob", Role.VIEWER, 3600.0)
            await tokens.revoke(token.id)
            clock.set_forward(1.0)
        assert len([token for token in tokens.list() if token.tenant == "bob"]) <= MOST_FORGOTTEN + 2
        assert len(await TokenStore(store).load()) == len(tokens.list())
        clock.set_forward(REMEMBERED_SECONDS + 3601.0)
        assert tokens.list() == []
        await tokens.create("new", "alice", Role.VIEWER, 3600.0)
        assert [token.tenant for token in await TokenStore(store).load()].count("alice") == 1


def test_the_operator_makes_lists_and_revokes_tokens_from_the_command_line(tmp_path: Path) -> None:
    async def commands() -> None:
        async with running_broker(tmp_path) as broker:
            (tmp_path / "addresses.json").write_text(json.dumps({"broker": broker.broker_address}))

            async def run(*words: str) -> str:
                arguments = ["token", *words, "--state-dir", str(tmp_path)]
                result = await asyncio.to_thread(CliRunner().invoke, app, arguments)
                assert result.exit_code == 0, result.stderr
                return result.stdout

            text = (await run("create", "ci", "--tenant", "alice", "--role", "submitter", "--days", "7")).strip()
            async with tenant_of(broker.broker_address, text) as ci:
                assert (await ci.submit()).tenant == "alice"
            shown = json.loads(await run("create", "eyes", "--tenant", "bob", "--json"))
            assert shown["token"].startswith("tcl_access_")
            assert (shown["role"], shown["tenant"], shown["state"]) == ("viewer", "bob", "good")
            listed = json.loads(await run("ls", "--json"))
            assert [each["name"] for each in listed] == ["ci", "eyes"]
            assert text not in await run("ls")
            assert "is good no more" in await run("revoke", listed[0]["id"])
            assert [each["state"] for each in json.loads(await run("ls", "--json"))] == ["revoked", "good"]
            operators = json.loads(await run("create", "second", "--role", "operator", "--json"))["token"]
            async with tenant_of(broker.broker_address, operators) as operator:
                assert await status_of(operator.nodes()) == "OK"
                assert await status_of(operator.submit()) == "PERMISSION_DENIED"

    asyncio.run(commands())
