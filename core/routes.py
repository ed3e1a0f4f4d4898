"""Which nodes answer for which endpoints, so that any of them can be asked for any endpoint."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

MOST_ENDPOINTS: Final = 4096
"""Endpoints in a table; of more, those that come first by name are told."""
MOST_BACKENDS: Final = 16
"""Nodes that are told of one endpoint."""
MOST_IN_ALL: Final = 8192
"""Nodes of all endpoints together."""
MOST_NODES: Final = 4096
"""Nodes that are believed."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A node whose inference server says that it answers for an endpoint."""

    node_id: str  # the node
    version: int  # the version that answers there; of several variants the highest
    # Where REST answers in the clear, ``host:port``, for servers on the same machine; empty where nobody may.
    http: str = ""
    grpc: str = ""  # the same of gRPC
    https: str = ""  # where REST answers by TLS, for those who show a certificate; empty where it does not
    grpcs: str = ""  # the same of gRPC
    draining: bool = False  # it answers still, and is to stop: others are asked first

    @property
    def place(self) -> tuple[str, str]:
        """Its node, and where REST is asked there."""
        return self.node_id, self.http or self.https


@dataclass(frozen=True, slots=True)
class Route:
    """Where an endpoint answers."""

    endpoint: str  # its name
    backends: tuple[Backend, ...]  # by the names of their nodes; at least one


@dataclass(frozen=True, slots=True)
class Routes:
    """A whole table."""

    routes: tuple[Route, ...] = ()  # by endpoint: one that is not in it answers nowhere
    # Nodes whose inference servers are believed in who asked them, when they hand a request on.
    nodes: tuple[str, ...] = ()
    number: int = 0  # grows with each table of a broker's life; no other life uses the same numbers


@dataclass(frozen=True, slots=True)
class RouteFile:
    """What the agent of a node leaves for its inference server."""

    node_id: str  # the node itself, which asks itself for nothing
    token: str  # what servers of this machine show each other, as they have no certificates there; empty for none
    routes: Routes  # the table


def bounded(routes: Iterable[Route], nodes: Iterable[str] = ()) -> Routes:
    """A table that holds as much as one may; of more, what comes first by name."""
    kept: list[Route] = []
    room = MOST_IN_ALL
    for route in sorted(routes, key=lambda each: each.endpoint)[:MOST_ENDPOINTS]:
        backends = tuple(sorted(route.backends, key=lambda each: each.node_id)[: min(MOST_BACKENDS, room)])
        if backends:
            kept.append(Route(route.endpoint, backends))
            room -= len(backends)
    return Routes(tuple(kept), tuple(sorted(nodes)[:MOST_NODES]))


def seen_from_elsewhere(routes: Routes) -> Routes:
    """A table for a machine that is not the broker's own: what answers there in the clear cannot be asked."""
    far = []
    for route in routes.routes:
        backends = tuple(replace(each, http="", grpc="") for each in route.backends if each.https or each.grpcs)
        if backends:
            far.append(Route(route.endpoint, backends))
    return Routes(tuple(far), routes.nodes, routes.number)
