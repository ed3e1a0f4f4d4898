"""Secrets over the real wire: kept by tenants, given to the agent of a run, and to nobody else."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from testing.brokers import node_token, running_broker, tenant_of, tenant_token
from testing.jobs import make_spec
from testing.scripted_agent import ScriptedAgent
from tiercel import Client, InvalidSpecError, NotFoundError, QuotaExceededError, SyncClient
from tiercel.broker.actors import secrets
from tiercel.trainer_agent.connection.calls import BrokerCalls
from tiercel.trainer_agent.connection.dialling import LocalDialler
from tiercel.trainer_agent.errors import RunFailedError, TransferError
from tiercel.trainer_agent.runs.secrets import SecretFetcher

VALUE = "hunter2-and-no-more"


async def test_a_tenant_keeps_secrets_and_no_call_tells_a_value(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(secrets, "MAX_SECRETS_OF_A_TENANT", 2)
    async with (
        running_broker(tmp_path) as broker,
        Client(broker.broker_address, token=tenant_token(tmp_path)) as alice,
        Client(broker.broker_address, token=tenant_token(tmp_path, "bob")) as bob,
    ):
        await alice.secrets.set("B_KEY", "1")
        await alice.secrets.set("A_KEY", VALUE)
        kept = await alice.secrets.set("B_KEY", VALUE)
        assert [secret.name for secret in await alice.secrets.list()] == ["A_KEY", "B_KEY"]
        assert (await alice.secrets.list())[1] == kept
        with pytest.raises(QuotaExceededError, match="has 2 secrets and may have no more"):
            await alice.secrets.set("C_KEY", VALUE)
        assert await bob.secrets.list() == ()
        with pytest.raises(NotFoundError, match="there is no secret 'A_KEY'"):
            await bob.secrets.remove("A_KEY")
        with pytest.raises(InvalidSpecError, match="secrets: there is no secret A_KEY; set it with"):
            await bob.submit(make_spec(secrets=("A_KEY",)))
        with pytest.raises(InvalidSpecError, match="cannot be set by a job"):
            await alice.secrets.set("HOME", VALUE)
        await alice.secrets.remove("A_KEY")
        assert [secret.name for secret in await alice.secrets.list()] == ["B_KEY"]
    assert VALUE not in caplog.text
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and VALUE.encode() in path.read_bytes()]


async def test_the_agent_of_a_run_is_given_its_secrets_until_one_is_removed(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        agent = ScriptedAgent(node_token(tmp_path))
        async with (
            Client(broker.broker_address, token=tenant_token(tmp_path)) as client,
            tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice,
            agent.connected(broker.nodes_address),
        ):
            await client.secrets.set("KEY", VALUE)
            await client.secrets.set("NOT_ASKED_FOR", VALUE)
            job = await alice.submit(secrets=("KEY",))
            run = await agent.wait_run(f"{job.id}-1")
            assert list(run.wanted.spec.secrets) == ["KEY"]
            assert VALUE not in str(run.wanted)
            address = broker.nodes_address

            def calls(instance: str) -> BrokerCalls:
                return BrokerCalls("n1", instance, LocalDialler(lambda: address, lambda: node_token(tmp_path)))

            assert await SecretFetcher(calls(agent.instance)).fetch(run.run_id) == {"KEY": VALUE}
            with pytest.raises(TransferError, match="another agent speaks for node n1"):
                await SecretFetcher(calls("f" * 32)).fetch(run.run_id)
            with pytest.raises(TransferError, match="no run 'other-1' is to start on this node"):
                await SecretFetcher(calls(agent.instance)).fetch("other-1")
            await client.secrets.remove("KEY")
            with pytest.raises(RunFailedError, match="there is no secret KEY; set it with"):
                await SecretFetcher(calls(agent.instance)).fetch(run.run_id)


async def test_secrets_without_an_event_loop(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        address, token = broker.broker_address, tenant_token(tmp_path)

        def use() -> list[str]:
            with SyncClient(address, token=token) as client:
                client.set_secret("A", VALUE)
                client.set_secret("B", VALUE)
                client.remove_secret("A")
                return [secret.name for secret in client.list_secrets()]

        assert await asyncio.to_thread(use) == ["B"]
