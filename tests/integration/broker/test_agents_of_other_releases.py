"""Agents of the release before and of the next one, as long as both speak the same protocol."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import grpc
import pytest

from testing.brokers import node_token, running_broker, tenant_of, tenant_token
from testing.membership import operator_of
from testing.recorded_agents import read_session
from testing.scripted_agent import ScriptedAgent
from testing.until import until
from tiercel.broker.client.membership import drain_node
from tiercel.broker.client.status import cluster_status
from tiercel.core.jobs import Tier
from tiercel.v1 import jobs_pb2, nodes_pb2

RELEASES = Path(__file__).parents[2] / "data" / "releases"
# The jobs of which the recorded agents speak.
RECORDED_JOB = "6969a91d"
DRAINED_JOB = "fd3bbc4e"
# What the agent of 0.1.0 said first, which did not tell its version yet.
BEFORE = bytes.fromhex(
    "127e0a026e31110000000000001040188080808020220770726f636573732a0b636f6f70657261746976654a200a0e313237"
    "2e302e302e313a38303830120e3132372e302e302e313a383038315801622030313233343536373839616263646566303132"
    "3334353637383961626364656668017a0b0a046469736b1203737364"
)
# The field 4000 of a hello that is to come, which nobody here knows.
_TO_COME = bytes([0x82, 0xFA, 0x01, 0x03]) + b"new"


def of_next_release() -> nodes_pb2.ConnectRequest:
    hello = nodes_pb2.ConnectRequest.FromString(BEFORE).hello
    hello.version = "0.3.0"
    return nodes_pb2.ConnectRequest(hello=nodes_pb2.NodeHello.FromString(hello.SerializeToString() + _TO_COME))


@pytest.mark.parametrize(
    ("hello", "version", "problems"),
    [(nodes_pb2.ConnectRequest.FromString(BEFORE), "", 0), (of_next_release(), "0.3.0", 1)],
)
async def test_an_agent_of_another_release_is_let_in_and_given_work(
    tmp_path: Path, hello: nodes_pb2.ConnectRequest, version: str, problems: int
) -> None:
    async with running_broker(tmp_path) as broker, operator_of(broker, tmp_path) as operator:
        agent = ScriptedAgent(node_token(tmp_path))
        agent.first_message = hello
        connected = agent.connected(broker.nodes_address)
        async with connected, tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice:
            await alice.submit(node_labels={"disk": "ssd"})
            await until(lambda: agent.runs)
            seen = await cluster_status(operator)
            assert [node.version for node in seen.nodes] == [version]
            assert len(seen.problems()) == problems


@pytest.mark.parametrize("version", ["0.3.0\n", "x" * 33, "<b>"])
async def test_a_version_that_is_none_is_not_told(tmp_path: Path, version: str) -> None:
    async with running_broker(tmp_path) as broker, operator_of(broker, tmp_path) as operator:
        agent = ScriptedAgent(node_token(tmp_path))
        agent.first_message = of_next_release()
        agent.first_message.hello.version = version
        async with agent.connected(broker.nodes_address):
            assert [node.version for node in (await cluster_status(operator)).nodes] == [""]


async def test_all_that_an_agent_of_the_release_before_said_of_a_job_counts(tmp_path: Path) -> None:
    """Its own words, recorded: it starts a run, reports, delivers two tiers, swaps them, and ends the run."""
    path = RELEASES / "agent_0.1.0.gz"
    hello = read_session(path, {})[0]
    async with running_broker(tmp_path / "b") as broker:
        agent = ScriptedAgent(node_token(tmp_path / "b"), hello.hello.node_id, starts_runs=False, delivers=False)
        agent.first_message = hello
        address, token = broker.broker_address, tenant_token(tmp_path / "b")
        async with agent.connected(broker.nodes_address), agent.beating(), tenant_of(address, token) as alice:
            job = await alice.submit("line", tiers=(Tier(0.5), Tier(0.9)), node_labels={"place": "far"})
            await until(lambda: agent.wanted is not None and bool(agent.wanted.runs))
            for message in read_session(path, {RECORDED_JOB: job.id})[1:]:
                await until(partial(is_asked_for, message, agent))
                assert agent.welcome is not None
                message.lease_epoch = agent.welcome.lease_epoch
                agent.tell_raw(message)
            async for _ in alice.events(job.id):
                pass
            done = await alice.get(job.id)
            (endpoint,) = await alice.endpoints()
            output = await alice.output(job.id)
    assert done.state == jobs_pb2.JOB_STATE_COMPLETED, done.reason
    assert [(tier.version, round(tier.delivered_value, 2)) for tier in done.tiers] == [(1, 0.69), (2, 0.91)]
    assert [version.version for version in endpoint.versions] == [1, 2]
    assert b"epoch 1  accuracy=0.69" in b"".join(data for _, data in output)


async def test_the_job_of_an_agent_of_the_release_before_moves_when_its_node_is_drained(tmp_path: Path) -> None:
    """Its own words, recorded: it delivers a tier, trains on, and lets go when the job shall go on elsewhere."""
    path = RELEASES / "agent_0.1.0_drained.gz"
    hello = read_session(path, {})[0]
    async with running_broker(tmp_path) as broker, operator_of(broker, tmp_path) as operator:
        agent = ScriptedAgent(node_token(tmp_path), hello.hello.node_id, starts_runs=False, delivers=False)
        agent.first_message, agent.instance = hello, hello.hello.instance
        today = ScriptedAgent(node_token(tmp_path), "n2")
        address, token = broker.broker_address, tenant_token(tmp_path)
        async with agent.connected(broker.nodes_address), agent.beating(), tenant_of(address, token) as alice:
            job = await alice.submit("line", tiers=(Tier(0.6), Tier(1.5)))
            run_id = f"{job.id}-1"
            await until(lambda: agent.wanted is not None and bool(agent.wanted.runs))
            async with today.connected(broker.nodes_address), today.beating():
                for message in read_session(path, {DRAINED_JOB: job.id})[1:]:
                    if b"stopping" in message.log.data:
                        await alice.wait(job.id, lambda seen: seen.epoch == 23)
                        await drain_node(operator, agent.node_id, migrate=True)
                        await until(lambda: agent.wanted is not None and any(run.carry for run in agent.wanted.runs))
                    if message.run.state == nodes_pb2.RUN_STATE_EXITED:
                        code = await agent.send_checkpoint(broker.nodes_address, run_id, b"what it has learnt")
                        assert code is grpc.StatusCode.OK
                    await until(partial(is_asked_for, message, agent))
                    assert agent.welcome is not None
                    message.lease_epoch = agent.welcome.lease_epoch
                    agent.tell_raw(message)
                moved = await today.wait_run(f"{job.id}-2")
                assert (moved.wanted.carried_run_id, list(moved.wanted.delivered_tiers)) == (run_id, [1])
                assert (await alice.get(job.id)).node_id == "n2"


def is_asked_for(message: nodes_pb2.ConnectRequest, agent: ScriptedAgent) -> bool:
    """Whether the broker wants that of which an agent speaks; a delivery that it has not asked for does not count."""
    wanted = agent.wanted.deliveries if agent.wanted is not None else ()
    stages = {nodes_pb2.DELIVERY_STAGE_EXPORTING}
    is_first = message.HasField("delivery") and message.delivery.stage in stages
    return not is_first or any(each.delivery_id == message.delivery.delivery_id for each in wanted)


def test_whoever_has_the_contract_of_the_release_before_reads_what_is_said_in_this_one() -> None:
    """No field has got another number, type or place; what only describes methods is on no wire."""
    buf = Path(sys.executable).with_name("buf")
    contract = str(RELEASES / "contract_0.1.0.binpb.gz")
    breaking = {"use": ["WIRE"], "ignore": ["protos/tiercel/v1/rights.proto"]}
    rules = {"version": "v2", "modules": [{"path": "protos"}], "breaking": breaking}
    command = [str(buf), "breaking", "--against", contract, "--config", json.dumps(rules)]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[3],
        check=False,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stdout + done.stderr
