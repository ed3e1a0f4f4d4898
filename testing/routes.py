"""Tables of who answers for which endpoint, as agents leave them for inference servers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

from testing.serving_process import ServingProcess, wait_for
from tiercel.core.private_files import write_private
from tiercel.core.routes import Backend, Route, RouteFile, Routes
from tiercel.core.storage import to_json

MACHINE_TOKEN = "m" * 64
_NUMBERS = itertools.count()


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


def lead(
    server: ServingProcess,
    file: Path,
    node_id: str,
    routes: Mapping[str, tuple[Backend, ...]],
    token: str = MACHINE_TOKEN,
) -> None:
    """Leave a table for a server, and wait until it goes by it."""
    mark = f"mark-{next(_NUMBERS)}"
    write_routes(file, node_id, {**routes, mark: (clear("nowhere", "127.0.0.1:1"),)}, token)
    # Unknown before; nobody listens there after.
    wait_for(lambda: server.request("GET", f"/v2/models/{mark}").status == 503, "the table to be read")
