"""The broker's doors for others at IPv6 addresses, in brackets wherever one is written with its port."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from functools import partial
from pathlib import Path

import aiomqtt
import pytest

from testing.brokers import running_broker, tenant_token
from testing.joined_agents import JoinedAgent
from testing.membership import operator_of
from testing.needs import has_ipv6, need
from testing.until import until
from testing.weak_tls import hears_strangers, is_open, weaknesses_of
from tiercel import Client
from tiercel.broker.api import listeners
from tiercel.broker.cli.up.joined import address_towards
from tiercel.broker.client.membership import create_join_token, join
from tiercel.broker.server import Broker
from tiercel.core.addresses import join_address, split_address
from tiercel.core.trust.join_token import JoinToken
from tiercel.core.trust.trust import Trust

HERE = "::1"
SILENT = 240


@pytest.fixture(autouse=True)
def ipv6() -> None:
    need(has_ipv6(), "IPv6 on the loopback interface")


@pytest.mark.parametrize(("listen", "also"), [(HERE, ()), ("::", ("127.0.0.1",))])
async def test_a_machine_joins_and_tenants_ask_at_every_address_that_was_asked_for(
    tmp_path: Path, listen: str, also: tuple[str, ...]
) -> None:
    settings = {"listen": listen, "listen_names": (HERE,)}
    async with running_broker(tmp_path / "b", **settings) as broker:
        doors = {key: where for key, where in broker.addresses.items() if key.endswith("_tls")}
        assert {split_address(where)[0] for where in doors.values()} == {HERE}
        assert await asyncio.gather(*map(weaknesses_of, doors.values())) == [[]] * 4
        async with operator_of(broker, tmp_path / "b") as operator:
            line = await create_join_token(operator, "", 60.0)
        assert line.address == broker.addresses["broker_tls"]
        assert listen != HERE or address_towards(line.address) == HERE
        for number, host in enumerate((HERE, *also)):
            port = split_address(line.address)[1]
            identity, nodes_port = await join(join_address(host, port), await token_of(broker, tmp_path), f"n{number}")
            address = partial(join_address, host, nodes_port)
            agent = JoinedAgent(f"n{number}", tmp_path / f"n{number}", address, identity)
            token, trust = tenant_token(tmp_path / "b"), Trust(pin=broker.addresses["pin"])
            async with agent.running(), Client(join_address(host, port), token=token, trust=trust) as client:
                await until(partial(agent.was_answered, 1))
                assert f"n{number}" in {node.id for node in await client.list_nodes() if node.online}
            context = ssl.create_default_context(cafile=str(tmp_path / "b" / "authority.pem"))
            context.check_hostname = False
            mqtt = split_address(broker.addresses["mqtt_tls"])[1]
            async with aiomqtt.Client(host, mqtt, username="alice", password=token, tls_context=context):
                pass
        assert not await hears_strangers(broker.addresses["nodes_tls"])


async def token_of(broker: Broker, folder: Path) -> JoinToken:
    async with operator_of(broker, folder / "b") as operator:
        return JoinToken.parse((await create_join_token(operator, "", 60.0)).token)


async def test_strangers_there_keep_nobody_out_and_who_is_known_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "_HANDSHAKE_MILLISECONDS", 600_000)
    async with running_broker(tmp_path / "b", listen="::", listen_names=(HERE,)) as broker:
        where = broker.addresses["nodes_tls"]
        token = await token_of(broker, tmp_path)
        identity, _ = await join(broker.addresses["broker_tls"], token, "n2")
        agent = JoinedAgent("n2", tmp_path / "n2", lambda: where, identity)
        async with agent.running():
            await until(lambda: agent.welcomes == 1)
            with contextlib.ExitStack() as stack:
                silent = []
                for _ in range(SILENT):
                    silent.append(stack.enter_context(socket.create_connection(split_address(where), 10)))
                    silent[-1].setblocking(False)
                    await asyncio.sleep(0)
                await until(lambda: sum(map(is_open, silent)) < listeners.NODES.connections * 3 // 4)
                await until(partial(agent.was_answered, agent.answered + 2))
            assert agent.welcomes == 1
