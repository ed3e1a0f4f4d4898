"""Agents of the release before and of the next one, as long as both speak the same protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.brokers import node_token, running_broker, tenant_of, tenant_token
from testing.membership import operator_of
from testing.scripted_agent import ScriptedAgent
from testing.until import until
from tiercel.broker.client.status import cluster_status
from tiercel.v1 import nodes_pb2

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
