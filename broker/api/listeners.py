"""Where calls come in: one listener for tenants, one for agents, each with limits of its own.

Whatever tenants and strangers do to theirs, agents get through on the other.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from tiercel.core.addresses import join_address, require_own
from tiercel.core.errors import UnavailableError
from tiercel.v1 import nodes_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tiercel.broker.api.methods import Methods

MIB = 1024 * 1024
_NODES = nodes_pb2.DESCRIPTOR.services_by_name["NodesService"].full_name
# A connection on which nobody says HTTP/2, one on which nobody has a call, and headers: all before authentication.
_HANDSHAKE_MILLISECONDS = 5_000
_IDLE_MILLISECONDS = 10_000
_HEADER_BYTES = 8 * 1024


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """What a listener takes."""

    received_bytes: int  # the largest message that comes in
    sent_bytes: int  # the largest one that goes out
    calls: int  # at the same time, streams included; more are refused at once
    connections: int  # at the same time; more are closed at once


# A script of 1 MiB comes in a message; a listing of all of a tenant's jobs goes out in one.
TENANTS = ListenerLimits(received_bytes=4 * MIB, sent_bytes=64 * MIB, calls=1_000, connections=256)
# Agents tell of all their runs at once, and are told of all.
NODES = ListenerLimits(received_bytes=64 * MIB, sent_bytes=64 * MIB, calls=1_000, connections=256)


def make_server(limits: ListenerLimits, gate: grpc.aio.ServerInterceptor) -> grpc.aio.Server:
    """A server that does not listen yet."""
    return grpc.aio.server(
        interceptors=[gate],
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", limits.received_bytes),
            ("grpc.max_send_message_length", limits.sent_bytes),
            ("grpc.max_concurrent_streams", limits.calls),
            ("grpc.max_allowed_incoming_connections", limits.connections),
            ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MILLISECONDS),
            ("grpc.max_connection_idle_ms", _IDLE_MILLISECONDS),
            ("grpc.max_metadata_size", _HEADER_BYTES),
        ],
        maximum_concurrent_rpcs=limits.calls,
    )


def bind(
    server: grpc.aio.Server, host: str, port: int, flag: str, credentials: grpc.ServerCredentials | None = None
) -> int:
    """Take a port and return it.

    Args:
        server: Who will listen.
        host: An address of this machine.
        port: 0 for any free one.
        flag: The option that chooses it, for the sentence.
        credentials: For TLS; None for none, which is for loopback only.

    Raises:
        UnavailableError: The port is in use, or the address is not this machine's.
    """
    require_own(host)  # gRPC would print a line of its own beside the sentence
    address = join_address(host, port)
    try:
        return (
            server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials)
        )
    except RuntimeError as error:
        raise UnavailableError(
            f"port {port} of {host} is in use; choose another with {flag}, or 0 for any that is free"
        ) from error


async def add_tenants_services(methods: Methods, services: Iterable[object]) -> None:
    """What answers on the tenants' listener; health and reflection do too.

    Args:
        methods: Of that listener.
        services: Each of a class that inherits from its servicer in the contract's generated code.
    """
    server = cast("grpc.aio.Server", methods)  # as far as services look at it
    for service in services:
        servicer = next(base for base in type(service).__mro__ if base.__module__.endswith("_pb2_grpc"))
        # Beside each servicer there is the function that adds it to a server.
        getattr(sys.modules[servicer.__module__], f"add_{servicer.__name__}_to_server")(service, server)
    names = methods.services
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    told = (*names, health.SERVICE_NAME, reflection.SERVICE_NAME)
    # enable_server_reflection() takes whatever is no server of gRPC's own for one without a loop.
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflection.aio.ReflectionServicer(told), server)
    for name in ("", *names, _NODES):
        await checks.set(name, health_pb2.HealthCheckResponse.SERVING)
