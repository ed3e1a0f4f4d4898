"""Somebody who opens connections and says nothing keeps no machine and no tenant out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from testing.brokers import running_broker, tenant_token
from testing.membership import WIDE, joined, open_as
from testing.scripted_agent import ScriptedAgent
from testing.until import until
from testing.weak_tls import is_open
from tiercel import Client
from tiercel.broker.api import listeners
from tiercel.core.trust.trust import Trust

SILENT = 240


def knock(address: str, source: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    found = socket.create_connection((host, int(port)), 10, (source, 0))
    found.setblocking(False)
    return found


@pytest.mark.parametrize("door", ["broker_tls", "nodes_tls"])
async def test_of_strangers_those_of_the_address_with_most_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, door: str
) -> None:
    # What goes does so because others need the place, not because gRPC waited for long enough.
    monkeypatch.setattr(listeners, "_HANDSHAKE_MILLISECONDS", 600_000)
    async with running_broker(tmp_path, listen=WIDE) as broker, contextlib.AsyncExitStack() as stack:
        identity = await joined(broker, tmp_path, "n2")
        agent = ScriptedAgent("", "n2", open_channel=lambda address: open_as(address, identity))
        await stack.enter_async_context(agent.connected(broker.addresses["nodes_tls"]))
        trust = Trust(pin=broker.addresses["pin"])
        client = Client(broker.addresses["broker_tls"], token=tenant_token(tmp_path), trust=trust)
        await stack.enter_async_context(client)
        assert [node.id for node in await client.list_nodes()] == ["n2"]

        address = broker.addresses[door]
        few = [stack.enter_context(knock(address, "127.0.0.4")) for _ in range(3)]
        many = []
        for number in range(SILENT):
            # From the address that the client and the agent come from, too: those have shown who they are.
            many.append(stack.enter_context(knock(address, "127.0.0.1")))
            if number % 20 == 0:
                await asyncio.sleep(0)
        # How many went is a matter of when they came; that the door is not left near its bound is not.
        await until(lambda: sum(map(is_open, many)) < listeners.TENANTS.connections * 3 // 4)
        assert all(map(is_open, few))
        # Those that were there stay, and who comes anew gets in.
        assert len(await client.list_nodes()) == 1
        late = Client(broker.addresses["broker_tls"], token=tenant_token(tmp_path), trust=trust)
        async with late:
            assert len(await late.list_nodes()) == 1
        assert (await joined(broker, tmp_path, "n3")).chain
        assert agent.ending is None
