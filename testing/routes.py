"""Tables of who answers for which endpoint, as agents leave them for inference servers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tiercel.core.private_files import write_private
from tiercel.core.routes import Backend, Route, RouteFile, Routes
from tiercel.core.storage import to_json

MACHINE_TOKEN = "m" * 64


def write_routes(
    file: Path, node_id: str, routes: Mapping[str, tuple[Backend, ...]], token: str = MACHINE_TOKEN
) -> None:
    """Leave a table for the server of a node."""
    nodes = sorted({each.node_id for backends in routes.values() for each in backends})
    table = Routes(tuple(Route(endpoint, backends) for endpoint, backends in sorted(routes.items())), tuple(nodes))
    write_private(file, to_json(RouteFile(node_id, token, table)).encode())


def clear(node_id: str, http: str, version: int = 1, *, draining: bool = False) -> Backend:
    """A node on this machine."""
    return Backend(node_id, version, http=http, draining=draining)
