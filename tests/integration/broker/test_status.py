"""The cluster at a glance, from a real broker: operators see all, tenants theirs."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import tiercel
from testing.brokers import node_token, running_broker, tenant_of, tenant_token
from testing.membership import operator_of
from testing.scripted_agent import ScriptedAgent
from testing.until import until
from tiercel.broker.cli.app import app
from tiercel.broker.client.connection import Connection
from tiercel.broker.client.membership import drain_node
from tiercel.broker.client.options import ClientOptions
from tiercel.broker.client.status import cluster_status
from tiercel.broker.server import Broker
from tiercel.core.jobs import Tier
from tiercel.core.nodes import Drain
from tiercel.core.status import ClusterStatus
from tiercel.core.trust.trust import Trust


async def as_tenant(broker: Broker, state_dir: Path, tenant: str) -> ClusterStatus:
    connection = await Connection.open(broker.broker_address, tenant_token(state_dir, tenant), ClientOptions(), Trust())
    try:
        return await cluster_status(connection)
    finally:
        await connection.close()


async def test_operators_see_all_and_tenants_theirs(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, operator_of(broker, tmp_path) as operator:
        empty = await cluster_status(operator)
        assert (empty.version, [each.what for each in empty.problems()]) == (tiercel.__version__, ["there is no node"])
        agent = ScriptedAgent(node_token(tmp_path), "n1")
        connected = agent.connected(broker.nodes_address)
        async with connected, tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice:
            job = await alice.submit("digits")
            await until(lambda: agent.runs)
            await drain_node(operator, "n1", migrate=False)
            waits = await alice.submit("other")
            await alice.wait(waits.id, lambda job: "drained" in job.reason)  # the scheduler has seen it
            seen = await cluster_status(operator)
            assert seen.tenant == ""
            assert [(node.id, node.online, node.jobs, node.drain) for node in seen.nodes] == [
                ("n1", True, 1, Drain.WAIT)
            ]
            assert seen.nodes[0].cpu_cores_asked == pytest.approx(job.spec.resources.cpu_cores)
            assert sum(seen.jobs.values()) == 2
            assert [(each.id, each.tenant) for each in seen.waiting] == [(waits.id, "alice")]
            assert await as_tenant(broker, tmp_path, "alice") == ClusterStatus(
                seen.version, "alice", seen.nodes, seen.jobs, seen.waiting
            )
            bobs = await as_tenant(broker, tmp_path, "bob")
            assert (bobs.tenant, bobs.jobs, bobs.waiting, bobs.nodes) == ("bob", {}, (), seen.nodes)


@pytest.mark.parametrize(("ahead", "words"), [(-3600.0, "1h behind"), (400 * 86_400.0, "400d ahead of")])
async def test_a_node_with_a_wrong_clock_is_told_of_and_what_it_tells_is_taken_at_the_brokers_time(
    ahead: float, words: str, tmp_path: Path
) -> None:
    async with running_broker(tmp_path) as broker, operator_of(broker, tmp_path) as operator:
        agent = ScriptedAgent(node_token(tmp_path), "n1")
        agent.clock_ahead_seconds = ahead
        connected = agent.connected(broker.nodes_address)
        async with connected, tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice:
            began = time.monotonic()
            job = await alice.submit("digits", tiers=(Tier(0.5), Tier(0.9)))
            await until(lambda: agent.runs)
            agent.report(next(iter(agent.runs)), 0.6)
            seen = await alice.wait(job.id, lambda job: job.tiers[0].HasField("delivered_seconds"))
            (tier, _), passed = seen.tiers, time.monotonic() - began
            assert 0 < tier.reached_seconds <= tier.delivered_seconds <= passed
            problems = (await cluster_status(operator)).problems()
            assert [each.what for each in problems if each.about == "node n1"] == [f"its clock is {words} the broker's"]


async def test_the_command_ends_with_1_where_there_is_something_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIERCEL_TOKEN", raising=False)
    async with running_broker(tmp_path) as broker:
        (tmp_path / "addresses.json").write_text(json.dumps({"broker": broker.broker_address}))
        agent = ScriptedAgent(node_token(tmp_path), "n1")
        command = ("status", "--state-dir", str(tmp_path))

        async def ran(*options: str) -> tuple[int, str]:
            done = await asyncio.to_thread(CliRunner().invoke, app, [*command, *options])
            return done.exit_code, done.output

        code, said = await ran()
        assert code == 1
        assert "! cluster: there is no node. To do: start 'tiercel up', or let a machine join." in said
        async with agent.connected(broker.nodes_address):
            code, said = await ran()
            assert (code, "n1" in said, "!" in said) == (0, True, False)
            code, said = await ran("--json", "--tenant", "bob")
            assert (code, json.loads(said)["tenant"], json.loads(said)["problems"]) == (0, "bob", [])
            code, said = await ran("--json")
            assert (code, json.loads(said)["tenant"]) == (0, "")
