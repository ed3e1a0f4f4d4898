"""Who may ask endpoints, and their keys, over the real wire: from tenants to the tables that nodes are told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testing.brokers import node_token, running_broker, tenant_token
from testing.jobs import make_spec
from testing.scripted_agent import ScriptedAgent
from tiercel import Client, InvalidSpecError, NotFoundError, QuotaExceededError, SyncClient
from tiercel.broker.actors import endpoint_keys
from tiercel.core.endpoint_access import EndpointAccess
from tiercel.core.tokens import hash_token
from tiercel.v1 import common_pb2, nodes_pb2


def rule_of(agent: ScriptedAgent, endpoint: str = "digits") -> nodes_pb2.EndpointRule | None:
    """What the agent's node was told of an endpoint last."""
    rules = agent.access.endpoints if agent.access is not None else ()
    return next((rule for rule in rules if rule.endpoint == endpoint), None)


def key_ids(agent: ScriptedAgent) -> set[str]:
    rule = rule_of(agent)
    return {key.id for key in rule.keys} if rule is not None else set()


def rates(agent: ScriptedAgent) -> list[float]:
    rule = rule_of(agent)
    return [key.per_second for key in rule.keys] if rule is not None else []


@contextlib.asynccontextmanager
async def lab(folder: Path) -> AsyncIterator[tuple[Client, Client, ScriptedAgent, ScriptedAgent, str]]:
    """Two tenants, two nodes, and a job that feeds the endpoint ``digits`` of the first tenant."""
    async with (
        running_broker(folder) as broker,
        Client(broker.broker_address, token=tenant_token(folder)) as alice,
        Client(broker.broker_address, token=tenant_token(folder, "bob")) as bob,
    ):
        first, second = (ScriptedAgent(node_token(folder), name) for name in ("n1", "n2"))
        async with first.connected(broker.nodes_address), second.connected(broker.nodes_address):
            job = await alice.submit(make_spec(endpoint="digits", access=EndpointAccess.KEY))
            yield alice, bob, first, second, job.id


async def test_every_node_is_told_who_may_ask_before_there_is_a_model(tmp_path: Path) -> None:
    async with lab(tmp_path) as (alice, _, first, second, _):
        await first.until(lambda: rule_of(first) and rule_of(second))
        for agent in (first, second):
            rule = rule_of(agent)
            assert rule is not None
            assert (rule.tenant, rule.access) == ("alice", common_pb2.ENDPOINT_ACCESS_KEY)
            assert not rule.keys
        assert [info.access for info in await alice.list_endpoints()] == [EndpointAccess.KEY]
        await alice.keys.set_access("digits", EndpointAccess.PUBLIC)
        await first.until(
            lambda: (rule_of(first) or nodes_pb2.EndpointRule()).access == common_pb2.ENDPOINT_ACCESS_PUBLIC
        )


async def test_keys_are_told_as_hashes_and_leave_when_they_are_revoked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with lab(tmp_path) as (alice, bob, first, second, _):
        key, secret = await alice.keys.create("digits", name="shop", seconds=60.0)
        other, _ = await alice.keys.create("digits")
        await first.until(lambda: key_ids(first) == key_ids(second) == {key.id, other.id})
        rule = rule_of(first)
        assert rule is not None
        told = next(each for each in rule.keys if each.id == key.id)
        assert told.sha256 == hash_token(secret)
        assert told.expires_at.seconds - key.created_at == pytest.approx(60.0, abs=1.0)
        assert [each.id for each in await alice.keys.list()] == [key.id, other.id]
        assert await alice.keys.list("nothing") == ()
        assert await bob.keys.list() == ()
        with pytest.raises(NotFoundError):
            await bob.keys.revoke(key.id)
        with pytest.raises(NotFoundError):
            await bob.keys.create("digits")
        with pytest.raises(NotFoundError):
            await bob.keys.set_access("digits", EndpointAccess.PUBLIC)
        await alice.keys.revoke(key.id)
        with pytest.raises(NotFoundError, match="tiercel key ls"):
            await alice.keys.revoke(key.id)
        await first.until(lambda: key_ids(first) == key_ids(second) == {other.id})
    assert secret not in caplog.text
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


async def test_keys_and_access_outlive_the_broker(tmp_path: Path) -> None:
    async with lab(tmp_path) as (alice, *_):
        key, _ = await alice.keys.create("digits", per_second=5.0, name="shop")
    async with running_broker(tmp_path) as broker, Client(broker.broker_address, token=tenant_token(tmp_path)) as alice:
        assert await alice.keys.list() == (key,)
        agent = ScriptedAgent(node_token(tmp_path))
        async with agent.connected(broker.nodes_address):
            await agent.until(lambda: key_ids(agent) == {key.id})
            assert (rule_of(agent) or nodes_pb2.EndpointRule()).access == common_pb2.ENDPOINT_ACCESS_KEY


async def test_a_rate_is_divided_by_where_the_key_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiercel.broker.actors.access_tables.DIVIDE_SECONDS", 0.0)
    async with lab(tmp_path) as (alice, _, first, second, _):
        key, _ = await alice.keys.create("digits", per_second=100.0)
        await first.until(lambda: key_ids(first) == {key.id})
        first.heartbeat()
        await first.until(lambda: rates(first) == rates(second) == [50.0])
        use = nodes_pb2.KeyUse(id=key.id, requests=1000)
        second.tell_raw(nodes_pb2.ConnectRequest(heartbeat=nodes_pb2.Heartbeat(number=5, fenced=True, keys=[use])))
        await second.until(lambda: rates(second) == [95.0])
        await first.until(lambda: rates(first) == [5.0])


async def test_what_takes_the_name_of_a_deleted_endpoint_has_none_of_its_keys(tmp_path: Path) -> None:
    async with lab(tmp_path) as (alice, bob, first, second, job_id):
        key, _ = await alice.keys.create("digits")
        await first.until(lambda: key_ids(first) == {key.id})
        await first.until(lambda: first.runs or second.runs)
        agent = first if first.runs else second
        (run_id,) = agent.runs
        agent.report(run_id, 0.95)
        await agent.until(lambda: agent.delivered)
        await alice.job(job_id).cancel()
        await alice.job(job_id).wait(30.0)
        await alice.delete_endpoint("digits")
        assert await alice.keys.list() == ()
        await bob.submit(make_spec(endpoint="digits"))
        await first.until(lambda: (rule_of(first) or nodes_pb2.EndpointRule()).tenant == "bob")
        rule = rule_of(first)
        assert rule is not None
        assert rule.access == common_pb2.ENDPOINT_ACCESS_TENANT
        assert not rule.keys


async def test_what_is_asked_of_a_key_has_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_keys, "MAX_KEYS_OF_AN_ENDPOINT", 2)
    async with lab(tmp_path) as (alice, *_):
        for per_second, seconds, name in ((1e9, 0, ""), (-1, 0, ""), (0, -1, ""), (0, 0, "a b"), (0, 0, "x" * 64)):
            with pytest.raises(InvalidSpecError):
                await alice.keys.create("digits", name=name, per_second=per_second, seconds=seconds)
        for _ in range(2):
            await alice.keys.create("digits")
        with pytest.raises(QuotaExceededError, match="tiercel key revoke"):
            await alice.keys.create("digits")


async def test_the_blocking_client_keeps_keys_too(tmp_path: Path) -> None:
    async with lab(tmp_path) as (alice, *_):

        def use() -> list[str]:
            with SyncClient(alice.address, token=tenant_token(tmp_path)) as client:
                client.set_access("digits", EndpointAccess.PUBLIC)
                first, _ = client.create_key("digits", name="one", per_second=2.0)
                client.create_key("digits", name="two")
                client.revoke_key(first.id)
                return [key.name for key in client.list_keys("digits")]

        assert await asyncio.to_thread(use) == ["two"]
        assert [info.access for info in await alice.list_endpoints()] == [EndpointAccess.PUBLIC]
