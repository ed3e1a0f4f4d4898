"""What HAProxy is told: from the table of who answers for which endpoint to the text of its file. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tiercel.core.routes import seen_from_elsewhere
from tiercel.core.trust.names import node_name
from tiercel.core.trust.trust import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tiercel.core.routes import Backend, Routes

FULL_WEIGHT = 100
_NODES = "nodes"
STATS_SOCKET, MASTER_SOCKET = "haproxy.sock", "master.sock"
AUTHORITY = "authority.pem"
ENDPOINT_KEY = "tiercel-endpoint"
"""Metadata of a gRPC request that says which endpoint it is for, since HAProxy does not look into messages."""

# Nothing else gets into the file, whatever the broker says.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_ADDRESS = re.compile(r"[A-Za-z0-9._-]{1,253}:[0-9]{1,5}|\[[0-9A-Fa-f:.]{2,45}\]:[0-9]{1,5}")
_WEIGHT = re.compile(r" weight [0-9]+$", re.MULTILINE)

# A request that is not longer can be sent again to another server; of larger ones none is.
_REQUEST_BYTES = 64 * 1024

# A process that is replaced answers one more request on each connection that was kept, and then closes it: one that it
# closed by itself might be written to at that moment, and that request be lost.
_HEAD = """\
# Written by 'tiercel proxy config'; what you change here is overwritten.
global
    stats socket {folder}/{stats} mode 600 level admin expose-fd listeners
    tune.bufsize {request_bytes}
    maxconn 2000
    hard-stop-after 150s
    ssl-default-bind-options ssl-min-ver TLSv1.3
    ssl-default-server-options ssl-min-ver TLSv1.3

defaults
    mode http
    timeout connect 2s
    timeout client 120s
    timeout server 120s
    timeout http-request 10s
    timeout http-keep-alive 60s
    timeout queue 5s
    balance random(2)
    http-reuse always
    retries 3
    option redispatch 1
    option idle-close-on-response
    retry-on conn-failure empty-response 0rtt-rejected
    option httpchk
    http-check send meth GET uri /v2/health/ready hdr Host localhost
    http-check expect status 200
    default-server inter 1s fall 2 rise 1

frontend rest
    bind {http}{rest_tls}
    {names}
    http-request set-header Host localhost if known
    http-request return status 200 content-type application/json string '{{"live": true}}' if {{ path /v2/health/live }}
    http-request return status 404 content-type application/json string '{{"error": "only /v2/models/NAME is here"}}' \
if !{{ path_beg /v2/models/ }}
    use_backend rest_%[path,field(4,/)]
    default_backend nobody

frontend grpc
    bind {grpc}{grpc_tls}
    use_backend grpc_%[req.hdr({key})] if {{ req.hdr({key}) -m found }}
    default_backend {any}

backend nobody
    http-request return status 503 content-type application/json hdr Retry-After 1 \
string '{{"error": "no node answers for an endpoint of this name now"}}'
"""


@dataclass(frozen=True, slots=True)
class Front:
    """Where applications ask the proxy."""

    folder: Path  # where its files are; absolute
    http: str  # address for REST, ``host:port``
    grpc: str  # address for gRPC
    # File with a certificate and its key, PEM, to be asked by TLS; None for asking in the clear.
    certificate: Path | None = None
    names: tuple[str, ...] = ()  # names by which applications call it, beside its addresses and localhost

    @property
    def is_wide(self) -> bool:
        """Whether others than those on this machine can ask."""
        return not (is_loopback(self.http) and is_loopback(self.grpc))


@dataclass(frozen=True, slots=True)
class Configuration:
    """A file, and what of it can change while HAProxy runs."""

    text: str  # the file
    weights: Mapping[tuple[str, str], int]  # of each server, by backend and name
    # Tenants whose certificates the proxy has to show, since servers are asked by TLS in their names.
    identities: frozenset[str]

    @property
    def backends(self) -> frozenset[str]:
        """The names of all backends that have servers."""
        return frozenset(backend for backend, _ in self.weights)


def identity_file(tenant: str) -> str:
    """The name of the file with a tenant's certificate and key."""
    return f"identity-{tenant}.pem"


def shape_of(text: str) -> str:
    """A file without what can change while HAProxy runs."""
    return _WEIGHT.sub("", text)


def configuration(tables: Mapping[str, Routes], front: Front) -> Configuration:
    """The file for the tables of tenants, by name; what is no name or address is left out of it.

    An endpoint's name is one tenant's, whose certificate is shown for it.
    """
    if front.is_wide:
        # In the clear, nodes take whoever asks for somebody on their own machine, who may ask more than others.
        tables = {tenant: seen_from_elsewhere(routes) for tenant, routes in tables.items()}
    backends: dict[str, tuple[str, list[Backend]]] = {}
    nodes: dict[str, tuple[str, Backend]] = {}
    for tenant, routes in sorted(tables.items()):
        rest, grpc = _backends(routes, of_grpc=False), _backends(routes, of_grpc=True)
        backends |= {f"rest_{name}": (tenant, servers) for name, servers in rest.items()}
        backends |= {f"grpc_{name}": (tenant, servers) for name, servers in grpc.items()}
        # Of several tenants nobody can say in whose name a request is that does not say for which endpoint.
        if len(tables) == 1 and (anywhere := _anywhere(grpc)):
            backends["grpc"] = (tenant, anywhere)
        nodes = {server.node_id: (tenant, server) for servers in rest.values() for server in servers} | nodes
    # Each node is asked once how it is, however many endpoints it has.
    checks = [_line(server, tenant, front, "check") for _, (tenant, server) in sorted(nodes.items())]
    lines = ["", f"backend {_NODES}", *checks]
    weights: dict[tuple[str, str], int] = {}
    for backend, (tenant, servers) in backends.items():
        lines += ["", f"backend {backend}"]
        alone = all(server.draining for server in servers)
        for server in servers:
            weight = 0 if server.draining and not alone else FULL_WEIGHT
            followed = f"track {_NODES}/{server.node_id} weight {weight}"
            lines.append(_line(server, tenant, front, followed, of_grpc=backend.startswith("grpc")))
            weights[backend, server.node_id] = weight
    text = _head(front, "grpc" if "grpc" in backends else "nobody") + "\n".join([*lines, ""])
    shown = frozenset(each for each in tables if f" ssl crt {front.folder / identity_file(each)} " in text)
    return Configuration(text, weights, shown)


def _head(front: Front, anywhere: str) -> str:
    tls = f" ssl crt {front.certificate}" if front.certificate is not None else ""
    return _HEAD.format(
        folder=front.folder,
        stats=STATS_SOCKET,
        request_bytes=_REQUEST_BYTES,
        http=front.http,
        grpc=front.grpc,
        rest_tls=f"{tls} alpn h2,http/1.1" if tls else "",
        grpc_tls=f"{tls} alpn h2" if tls else " proto h2",
        # Servers take no name but their own, so that no page of the web can ask them under its name.
        names=f"acl known req.hdr(host),field(1,:) -i {' '.join(('localhost', *front.names))}",
        key=ENDPOINT_KEY,
        any=anywhere,
    )


def _backends(routes: Routes, *, of_grpc: bool) -> dict[str, list[Backend]]:
    """Who can be asked, by endpoint."""
    found = {}
    for route in routes.routes:
        servers = [each for each in route.backends if _can_ask(each, of_grpc=of_grpc)]
        if servers and _NAME.fullmatch(route.endpoint):
            found[route.endpoint] = servers
    return found


def _can_ask(server: Backend, *, of_grpc: bool) -> bool:
    # Health is asked by REST, also that of gRPC.
    both = (server.grpc, server.http) if _clear(server, of_grpc=of_grpc) else (server.grpcs, server.https)
    needed = both if of_grpc else both[1:]
    return _NAME.fullmatch(server.node_id) is not None and all(_ADDRESS.fullmatch(each) for each in needed)


def _clear(server: Backend, *, of_grpc: bool) -> bool:
    return bool(server.grpc and server.http) if of_grpc else bool(server.http)


def _anywhere(by_endpoint: Mapping[str, Iterable[Backend]]) -> list[Backend]:
    """Who is asked by gRPC when a request does not say for which endpoint: those that answer for all, or else all."""
    nodes: dict[str, Backend] = {}
    counts: dict[str, int] = {}
    for servers in by_endpoint.values():
        for server in servers:
            nodes.setdefault(server.node_id, replace(server, draining=False))
            counts[server.node_id] = counts.get(server.node_id, 0) + 1
    complete = [node for node, count in counts.items() if count == len(by_endpoint)]
    return [nodes[node] for node in sorted(complete or nodes)]


def _line(server: Backend, tenant: str, front: Front, options: str, *, of_grpc: bool = False) -> str:
    begin = f"    server {server.node_id}"
    if _clear(server, of_grpc=of_grpc):
        return f"{begin} {server.grpc} proto h2 {options}" if of_grpc else f"{begin} {server.http} {options}"
    address, protocol = (server.grpcs, "h2") if of_grpc else (server.https, "http/1.1")
    name = node_name(server.node_id)
    return (
        f"{begin} {address} ssl crt {front.folder / identity_file(tenant)} ca-file {front.folder / AUTHORITY} "
        f"verify required sni str({name}) verifyhost {name} check-sni {name} alpn {protocol} {options}"
    )
