"""Reads who answers for which endpoint from the file that the agent of this node leaves, whenever that changes.

A file that cannot be read changes nothing: what was known before holds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tiercel.core.routes import Backend, RouteFile, Routes
from tiercel.core.storage import from_json

_logger = logging.getLogger(__name__)

MOST_BYTES: Final = 8 * 1024**2
_LOOK_SECONDS: Final = 0.2
# A request for a model that nobody is known to have looks at once, but a flood of them does not.
_AGAIN_SECONDS: Final = 0.02
# Larger ones are read in another thread.
_SMALL_BYTES: Final = 64 * 1024

_Stamp = tuple[int, int, int]


class Directory:
    """Knows the other nodes that answer.

    Args:
        file: The agent's file; None where there is none, and nobody else answers.
    """

    def __init__(self, file: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._stamp: _Stamp | None = None
        self._looked_at = -_AGAIN_SECONDS
        self._backends: dict[str, tuple[Backend, ...]] = {}
        self._places: frozenset[tuple[str, str]] = frozenset()
        self._nodes: frozenset[str] = frozenset()
        self.believed: frozenset[str] = frozenset()
        """Nodes that are believed in who asked them."""
        self.number = 0
        """Of the table, as its broker counts."""
        self.node_id = ""
        """Of this node; empty for unknown."""
        self.token = ""
        """What servers of this machine show each other; empty for none."""
        self._look_now()

    def backends(self, endpoint: str) -> tuple[Backend, ...]:
        """The other nodes that answer for an endpoint; looks into the file if none is known."""
        found = self._backends.get(endpoint, ())
        if not found:
            self.look()
            found = self._backends.get(endpoint, ())
        return found

    def look(self) -> None:
        """Look into the file at once, but not all the time."""
        if self._file is not None and self._clock() - self._looked_at >= _AGAIN_SECONDS:
            self._look_now()

    @property
    def nodes(self) -> frozenset[str]:
        """The other nodes that answer for anything."""
        return self._nodes

    @property
    def places(self) -> frozenset[tuple[str, str]]:
        """The same, each with where it is asked."""
        return self._places

    async def watch(self) -> None:
        """Follow the file for ever."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if self._file is not None and (stamp := _stamp_of(self._file)) != self._stamp:
                found = await asyncio.to_thread(_read, self._file)
                self._take(found, stamp)

    def _look_now(self) -> None:
        if self._file is None:
            return
        self._looked_at = self._clock()
        stamp = _stamp_of(self._file)
        if stamp != self._stamp and stamp is not None and stamp[2] <= _SMALL_BYTES:
            self._take(_read(self._file), stamp)

    def _take(self, found: RouteFile | str, stamp: _Stamp | None) -> None:
        self._stamp = stamp
        if isinstance(found, str):
            if stamp is not None:  # else there is none yet
                _logger.warning("Who answers for which endpoint cannot be read, and stays as it was: %s", found)
            return
        self.token = found.token
        self.node_id = found.node_id
        self.believed = frozenset(found.routes.nodes)
        self.number = found.routes.number
        self._backends = _of_others(found.routes, found.node_id)
        self._places = frozenset(each.place for backends in self._backends.values() for each in backends)
        self._nodes = frozenset(node for node, _ in self._places)


def _of_others(routes: Routes, node_id: str) -> dict[str, tuple[Backend, ...]]:
    found: dict[str, tuple[Backend, ...]] = {}
    for route in routes.routes:
        others = tuple(each for each in route.backends if each.node_id != node_id and (each.http or each.https))
        if others:
            found[route.endpoint] = others
    return found


def _stamp_of(file: Path) -> _Stamp | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _read(file: Path) -> RouteFile | str:
    """What is in the file, or what is wrong with it; blocks."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            return f"{file} is over {MOST_BYTES} bytes"
        return from_json(RouteFile, content.decode())
    except OSError as error:
        return f"{file}: {error.strerror or error}"
    except ValueError as error:
        return f"{file}: {error}"
