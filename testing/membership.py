"""Machines that join a broker, for tests: their keys and certificates, and the doors that they knock at."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from tiercel.broker.client.connection import Connection
from tiercel.broker.client.membership import create_join_token, join, remove_node
from tiercel.broker.client.options import ClientOptions
from tiercel.broker.server import Broker
from tiercel.broker.tenancy import open_tenancy
from tiercel.core.trust.certificates import BROKER_NAME, Identity, authorities_in, read_chain, to_pem
from tiercel.core.trust.join_token import JoinToken
from tiercel.core.trust.trust import Trust

WIDE = "127.0.0.2"
"""An address of this machine that stands for one that others reach."""


@contextlib.asynccontextmanager
async def operator_of(broker: Broker, state_dir: Path) -> AsyncIterator[Connection]:
    """The operator's connection."""
    token = open_tenancy(state_dir, ()).operator_token
    connection = await Connection.open(broker.broker_address, token, ClientOptions(), Trust())
    try:
        yield connection
    finally:
        await connection.close()


async def joined(broker: Broker, state_dir: Path, node_id: str) -> Identity:
    """A machine that joins: its key and certificates."""
    async with operator_of(broker, state_dir) as operator:
        line = await create_join_token(operator, "", 60.0)
    identity, nodes_port = await join(line.address, JoinToken.parse(line.token), node_id)
    assert broker.addresses["nodes_tls"] == f"{WIDE}:{nodes_port}"
    return identity


async def removed(broker: Broker, state_dir: Path, node_id: str) -> None:
    """The operator takes a machine off the list."""
    async with operator_of(broker, state_dir) as operator:
        await remove_node(operator, node_id)


def open_as(address: str, identity: Identity, roots: bytes | None = None) -> grpc.aio.Channel:
    """A channel to the agents' encrypted door."""
    authorities = roots or to_pem(*authorities_in(read_chain(identity.chain)))
    credentials = grpc.ssl_channel_credentials(authorities, identity.key, identity.chain)
    options = [("grpc.ssl_target_name_override", BROKER_NAME), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.secure_channel(address, credentials, options)
