"""What the operator says about which machines are nodes, and how a machine becomes one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tiercel.broker.client.connection import Connection
from tiercel.broker.client.options import ClientOptions
from tiercel.core.errors import NotAuthenticatedError, UnavailableError
from tiercel.core.trust.certificates import (
    CertificateError,
    Identity,
    authorities_in,
    key_to_pem,
    make_key,
    make_request,
    node_of,
    read_chain,
)
from tiercel.core.trust.trust import Trust
from tiercel.v1 import membership_pb2, membership_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.hazmat.primitives.asymmetric import ec

    from tiercel.core.trust.join_token import JoinToken


@dataclass(frozen=True, slots=True)
class JoinLine:
    """How a machine joins."""

    address: str  # the broker's, ``host:port``
    token: str  # works once
    expires_at: datetime  # when it does no more


async def create_join_token(
    connection: Connection, node_id: str, seconds: float, listen_names: Sequence[str] = ()
) -> JoinLine:
    """Ask the broker for a token, on a connection with the operator's token.

    Args:
        connection: To the broker.
        node_id: The only name that it shall be good for; empty for any.
        seconds: How long it shall be good for.
        listen_names: Names of DNS that the node's certificate shall have as well.

    Raises:
        TiercelError: What the broker answered, or that it does not answer.
    """
    stub = membership_pb2_grpc.MembershipServiceStub(connection.channel)
    request = membership_pb2.CreateJoinTokenRequest(node_id=node_id, seconds=seconds, listen_names=listen_names)
    answer = await connection.call(stub.CreateJoinToken, request)
    return JoinLine(answer.address, answer.token, answer.expires_at.ToDatetime(UTC))


async def remove_node(connection: Connection, node_id: str) -> None:
    """Have the broker take a node off its list, on a connection with the operator's token.

    Raises:
        NotFoundError: No machine joined by that name.
        TiercelError: What the broker answered, or that it does not answer.
    """
    stub = membership_pb2_grpc.MembershipServiceStub(connection.channel)
    await connection.call(stub.RemoveNode, membership_pb2.RemoveNodeRequest(node_id=node_id))


@dataclass(frozen=True, slots=True)
class LeftThere:
    """What a node has that is being emptied."""

    jobs: int  # jobs of all tenants that are there
    endpoints: tuple[str, ...]  # endpoints of all tenants that answer there, by name
    # Whether none of it will go by itself: there is no other node that takes anything.
    is_stuck: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left."""
        return not (self.jobs or self.endpoints)


async def drain_node(connection: Connection, node_id: str, *, migrate: bool) -> LeftThere:
    """Have nothing new start on a node, on a connection with the operator's token.

    Args:
        connection: To the broker.
        node_id: The node.
        migrate: Whether the jobs that run there are moved to other nodes; else they end there by themselves.

    Raises:
        NotFoundError: The broker knows no such node.
        TiercelError: What the broker answered, or that it does not answer.
    """
    stub = membership_pb2_grpc.MembershipServiceStub(connection.channel)
    answer = await connection.call(stub.DrainNode, membership_pb2.DrainNodeRequest(node_id=node_id, migrate=migrate))
    return LeftThere(answer.jobs, tuple(answer.endpoints))


async def undrain_node(connection: Connection, node_id: str) -> None:
    """Let jobs start on a node again, on a connection with the operator's token.

    Raises:
        NotFoundError: The broker knows no such node.
        TiercelError: What the broker answered, or that it does not answer.
    """
    stub = membership_pb2_grpc.MembershipServiceStub(connection.channel)
    await connection.call(stub.UndrainNode, membership_pb2.UndrainNodeRequest(node_id=node_id))


async def join(
    address: str, token: JoinToken, node_id: str, key: ec.EllipticCurvePrivateKey | None = None
) -> tuple[Identity, int]:
    """Have the broker sign a key; returns both, and the port where agents connect.

    Args:
        address: The broker's, ``host:port``.
        token: Says whom to believe, and proves that this machine may join.
        node_id: The name that this machine wants.
        key: As of an earlier try, whose answer may have been lost; a fresh one when left out.

    Raises:
        TiercelError: The broker refuses, or whoever answers is not the broker: then the secret was not sent.
    """
    key = key or make_key()
    try:
        connection = await Connection.open(address, "", ClientOptions(), Trust(pin=token.pin))
    except NotAuthenticatedError as error:
        raise NotAuthenticatedError(
            f"token: whoever answers at {address} is not vouched for by the authority that this line names: the "
            "broker's was rotated since the line was made, or the address is another broker's, or somebody stands "
            "between; nothing was sent. Make a new line with 'tiercel node token' on the broker's machine",
            field="token",
        ) from error
    try:
        stub = membership_pb2_grpc.MembershipServiceStub(connection.channel)
        request = membership_pb2.JoinRequest(
            token_id=token.id, secret=token.secret, node_id=node_id, certificate_request=make_request(key)
        )
        answer = await connection.call(stub.Join, request)
    finally:
        await connection.close()
    identity = Identity(key_to_pem(key), answer.certificates)
    try:
        authorities_in(read_chain(identity.chain))
        fits = identity.certificate.public_key() == key.public_key() and node_of(identity.certificate) == node_id
    except CertificateError:
        fits = False
    if not fits:
        raise UnavailableError(f"The broker at {address} answered with a certificate that is not this node's.")
    return identity, answer.nodes_port
