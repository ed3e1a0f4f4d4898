"""Where calls come in: one listener for tenants, one for agents, each with limits of its own.

Whatever tenants and strangers do to theirs, agents get through on the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from tiercel.core.addresses import join_address, require_own
from tiercel.core.errors import UnavailableError
from tiercel.v1 import (
    access_pb2,
    access_pb2_grpc,
    addresses_pb2,
    addresses_pb2_grpc,
    audit_pb2,
    audit_pb2_grpc,
    authority_pb2,
    authority_pb2_grpc,
    dashboard_pb2,
    dashboard_pb2_grpc,
    disk_pb2,
    disk_pb2_grpc,
    files_pb2,
    files_pb2_grpc,
    jobs_pb2,
    jobs_pb2_grpc,
    keys_pb2,
    keys_pb2_grpc,
    lineage_pb2,
    lineage_pb2_grpc,
    membership_pb2,
    membership_pb2_grpc,
    models_pb2,
    models_pb2_grpc,
    nodes_pb2,
    policy_pb2,
    policy_pb2_grpc,
    projects_pb2,
    projects_pb2_grpc,
    quotas_pb2,
    quotas_pb2_grpc,
    secrets_pb2,
    secrets_pb2_grpc,
    status_pb2,
    status_pb2_grpc,
    tokens_pb2,
    tokens_pb2_grpc,
    what_if_pb2,
    what_if_pb2_grpc,
)

if TYPE_CHECKING:
    from tiercel.broker.api.access import AccessService
    from tiercel.broker.api.addresses import AddressesService
    from tiercel.broker.api.audit import AuditService
    from tiercel.broker.api.authority import AuthorityService
    from tiercel.broker.api.dashboard import DashboardService
    from tiercel.broker.api.disk import DiskService
    from tiercel.broker.api.files import FilesService
    from tiercel.broker.api.jobs import JobsService
    from tiercel.broker.api.keys import KeysService
    from tiercel.broker.api.lineage import LineageService
    from tiercel.broker.api.membership import MembershipService
    from tiercel.broker.api.methods import Methods
    from tiercel.broker.api.models import ModelsService
    from tiercel.broker.api.policy import PolicyService
    from tiercel.broker.api.projects import ProjectsService
    from tiercel.broker.api.quotas import QuotasService
    from tiercel.broker.api.secrets import SecretsService
    from tiercel.broker.api.status import StatusService
    from tiercel.broker.api.tokens import TokensService
    from tiercel.broker.api.what_if import WhatIfService

MIB = 1024 * 1024
_TENANTS_SERVICES = tuple(
    module.DESCRIPTOR.services_by_name[name].full_name
    for module, name in (
        (access_pb2, "AccessService"),
        (addresses_pb2, "AddressesService"),
        (audit_pb2, "AuditService"),
        (authority_pb2, "AuthorityService"),
        (dashboard_pb2, "DashboardService"),
        (disk_pb2, "DiskService"),
        (files_pb2, "FilesService"),
        (jobs_pb2, "JobsService"),
        (keys_pb2, "KeysService"),
        (lineage_pb2, "LineageService"),
        (membership_pb2, "MembershipService"),
        (models_pb2, "ModelsService"),
        (policy_pb2, "PolicyService"),
        (projects_pb2, "ProjectsService"),
        (quotas_pb2, "QuotasService"),
        (secrets_pb2, "SecretsService"),
        (status_pb2, "StatusService"),
        (tokens_pb2, "TokensService"),
        (what_if_pb2, "WhatIfService"),
    )
)
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


async def add_tenants_services(
    methods: Methods,
    jobs: JobsService,
    disk: DiskService,
    files: FilesService,
    lineage: LineageService,
    models: ModelsService,
    projects: ProjectsService,
    secrets: SecretsService,
    membership: MembershipService,
    access: AccessService,
    tokens: TokensService,
    addresses: AddressesService,
    status: StatusService,
    keys: KeysService,
    audit: AuditService,
    policy: PolicyService,
    quotas: QuotasService,
    authority: AuthorityService,
    dashboard: DashboardService,
    what_if: WhatIfService,
) -> None:
    """What answers on the tenants' listener; health and reflection do too."""
    server = cast("grpc.aio.Server", methods)  # as far as services look at it
    jobs_pb2_grpc.add_JobsServiceServicer_to_server(jobs, server)
    disk_pb2_grpc.add_DiskServiceServicer_to_server(disk, server)
    files_pb2_grpc.add_FilesServiceServicer_to_server(files, server)
    lineage_pb2_grpc.add_LineageServiceServicer_to_server(lineage, server)
    models_pb2_grpc.add_ModelsServiceServicer_to_server(models, server)
    projects_pb2_grpc.add_ProjectsServiceServicer_to_server(projects, server)
    secrets_pb2_grpc.add_SecretsServiceServicer_to_server(secrets, server)
    membership_pb2_grpc.add_MembershipServiceServicer_to_server(membership, server)
    access_pb2_grpc.add_AccessServiceServicer_to_server(access, server)
    tokens_pb2_grpc.add_TokensServiceServicer_to_server(tokens, server)
    addresses_pb2_grpc.add_AddressesServiceServicer_to_server(addresses, server)
    status_pb2_grpc.add_StatusServiceServicer_to_server(status, server)
    keys_pb2_grpc.add_KeysServiceServicer_to_server(keys, server)
    audit_pb2_grpc.add_AuditServiceServicer_to_server(audit, server)
    policy_pb2_grpc.add_PolicyServiceServicer_to_server(policy, server)
    quotas_pb2_grpc.add_QuotasServiceServicer_to_server(quotas, server)
    authority_pb2_grpc.add_AuthorityServiceServicer_to_server(authority, server)
    dashboard_pb2_grpc.add_DashboardServiceServicer_to_server(dashboard, server)
    what_if_pb2_grpc.add_WhatIfServiceServicer_to_server(what_if, server)
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    told = (*_TENANTS_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
    # enable_server_reflection() takes whatever is no server of gRPC's own for one without a loop.
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflection.aio.ReflectionServicer(told), server)
    for service in ("", *_TENANTS_SERVICES, _NODES):
        await checks.set(service, health_pb2.HealthCheckResponse.SERVING)
