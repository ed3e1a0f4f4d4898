"""The table of who answers for which endpoint, from what nodes say and nothing else."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiercel.core.routes import Backend, Route, Routes, bounded
from tiercel.core.trust.trust import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ADDRESS = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class NodeServing:
    """What a node's inference server answers.

    Attributes:
        node_id: The node.
        http: Where REST answers: ``host:port``, or ``https://host:port`` by TLS.
        grpc: Where gRPC does: ``host:port``, or ``grpcs://host:port``.
        is_local: Whether the node is on the broker's machine: only there is an address in the clear of use to others.
        versions: What answers of endpoints that the node is to have, or had until now.
        leaving: Those of them that shall answer elsewhere.
        local_http: Where REST answers on the broker's machine in the clear, where ``http`` is by TLS; ``host:port``.
        local_grpc: The same of gRPC.
    """

    node_id: str
    http: str
    grpc: str
    is_local: bool
    versions: Mapping[str, int]
    leaving: frozenset[str]
    local_http: str = ""
    local_grpc: str = ""


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


def _clear(address: str, is_local: bool) -> str:
    return address if is_local and _ADDRESS.fullmatch(address) and is_loopback(address) else ""


def _encrypted(address: str, scheme: str) -> str:
    found = address.removeprefix(scheme)
    return found if found != address and _ADDRESS.fullmatch(found) else ""
