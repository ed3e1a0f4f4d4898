"""The table of who answers for which endpoint, from what nodes say and nothing else."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tiercel.core.routes import Backend, Route, Routes, bounded
from tiercel.core.trust.trust import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ADDRESS = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class NodeServing:
    """What a node's inference server answers."""

    node_id: str  # the node
    http: str  # where REST answers: ``host:port``, or ``https://host:port`` by TLS
    grpc: str  # where gRPC does: ``host:port``, or ``grpcs://host:port``
    # Whether the node is on the broker's machine: only there is an address in the clear of use to others.
    is_local: bool
    versions: Mapping[str, int]  # what answers of endpoints that the node is to have, or had until now
    leaving: frozenset[str]  # those of them that shall answer elsewhere
    # Where REST answers on the broker's machine in the clear, where ``http`` is by TLS; ``host:port``.
    local_http: str = ""
    local_grpc: str = ""  # the same of gRPC


def routes_of(nodes: Iterable[NodeServing], away: Iterable[str] = ()) -> Routes:
    """The table of nodes that are online; several may answer for one endpoint.

    Args:
        nodes: Those that are online.
        away: Those that are not, and are of the cluster still: they are believed from the moment on when they are back.
    """
    nodes = tuple(nodes)
    found: dict[str, list[Backend]] = defaultdict(list)
    for node in nodes:
        clear = (
            _clear(node.local_http or node.http, node.is_local),
            _clear(node.local_grpc or node.grpc, node.is_local),
        )
        encrypted = _encrypted(node.http, "https://"), _encrypted(node.grpc, "grpcs://")
        if not any((*clear, *encrypted)):
            continue
        for endpoint, version in node.versions.items():
            found[endpoint].append(
                Backend(node.node_id, version, *clear, *encrypted, draining=endpoint in node.leaving)
            )
    routes = (Route(endpoint, tuple(backends)) for endpoint, backends in found.items())
    return bounded(routes, {*away, *(node.node_id for node in nodes)})


@dataclass(frozen=True, slots=True)
class ToldRoutes:
    """The newest table, and since which one each endpoint has answered where it does."""

    table: Routes  # the table
    # Number of the first table that said the same of an endpoint as this one, by endpoint.
    since: Mapping[str, int] = field(default_factory=dict)
    first: int = 0  # number of the first table of all


def renewed(told: ToldRoutes | None, table: Routes, first: int) -> ToldRoutes:
    """The table as it is to be told from now on; the same object where nothing has changed.

    Args:
        told: What was told before; None for nothing.
        table: Who answers now.
        first: Number of the first table that is told.
    """
    if told is None:
        return ToldRoutes(replace(table, number=first), {route.endpoint: first for route in table.routes}, first)
    number = told.table.number
    if replace(table, number=number) == told.table:
        return told
    before = {route.endpoint: route for route in told.table.routes}
    since = {
        route.endpoint: told.since[route.endpoint] if before.get(route.endpoint) == route else number + 1
        for route in table.routes
    }
    return ToldRoutes(replace(table, number=number + 1), since, told.first)


def known_elsewhere(told: ToldRoutes, node_id: str, leaving: Iterable[str], confirmed: Iterable[int]) -> frozenset[str]:
    """The endpoints that may stop to answer on a node: all others know of one that answers and goes on to.

    Args:
        told: What was told.
        node_id: The node.
        leaving: Endpoints that shall answer there no more.
        confirmed: Numbers of the tables by which the servers that can be asked go.
    """
    routes = {route.endpoint: route.backends for route in told.table.routes}
    oldest = min((number if told.first <= number <= told.table.number else 0 for number in confirmed), default=0)
    return frozenset(
        name
        for name in leaving
        if oldest >= told.since.get(name, told.table.number + 1)
        and any(each.node_id != node_id and not each.draining for each in routes[name])
    )


def _clear(address: str, is_local: bool) -> str:
    return address if is_local and _ADDRESS.fullmatch(address) and is_loopback(address) else ""


def _encrypted(address: str, scheme: str) -> str:
    found = address.removeprefix(scheme)
    return found if found != address and _ADDRESS.fullmatch(found) else ""
