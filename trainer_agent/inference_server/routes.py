"""Leaves the table of who answers for which endpoint where the inference server of the node finds it.

The file outlives broker, agent and inference server: until a broker says something else, it holds.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from tiercel.core.complaints import Complaint
from tiercel.core.private_files import write_private
from tiercel.core.routes import RouteFile, Routes
from tiercel.core.storage import to_json
from tiercel.core.wire import from_proto
from tiercel.trainer_agent.errors import AgentError
from tiercel.v1 import nodes_pb2

_log = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 1.0
# For what answers on another node to be told of everywhere: inference servers are asked twice a second what they
# have, and which table they go by. A node that is cut off is waited for no longer.
_ELSEWHERE_SECONDS: Final = 5.0


def machine_token(agents_token: str) -> str:
    """What inference servers of the broker's machine show each other: whoever has the agents' token can make it.

    Args:
        agents_token: The token of agents on that machine; empty elsewhere, where certificates do it.
    """
    if not agents_token:
        return ""
    return hmac.new(agents_token.encode(), b"tiercel: between servers", hashlib.sha256).hexdigest()


class RouteKeeper:
    """Writes the newest table there is.

    Args:
        path: The file.
        node_id: The node.
        token: What servers of this machine show each other, read at each write; raises AgentError where nobody knows.
    """

    def __init__(self, path: Path, node_id: str, token: Callable[[], str]) -> None:
        self._path = path
        self._node_id = node_id
        self._token = token
        self._wanted: Routes | None = None
        self._written: Routes | None = None
        self._may_go: Collection[str] = frozenset()
        self._changed = asyncio.Event()
        self._settled = asyncio.Condition()

    def ingest(self, wanted: nodes_pb2.WantedState) -> None:
        """Take in what the broker says of tables."""
        self.let_go(frozenset(wanted.answered_elsewhere))
        if wanted.HasField("routes"):
            self.want(from_proto(Routes, wanted.routes))

    def want(self, routes: Routes) -> None:
        """Have this table written; in place of an earlier one that is not."""
        self._wanted = routes
        self._changed.set()

    def let_go(self, endpoints: Collection[str]) -> None:
        """All nodes know who answers for these in our place."""
        if endpoints != self._may_go:
            self._may_go = endpoints
            self._changed.set()

    def answers_elsewhere(self, endpoint: str) -> bool:
        """Whether all nodes know of another one that answers and goes on to, ours by the table in its file."""
        if self._written is None or endpoint not in self._may_go:
            return False
        found = (route.backends for route in self._written.routes if route.endpoint == endpoint)
        return any(each.node_id != self._node_id and not each.draining for backends in found for each in backends)

    async def wait_elsewhere(self, endpoint: str, seconds: float = _ELSEWHERE_SECONDS) -> None:
        """Wait until another node answers for an endpoint, so far as all servers know, or time is over."""
        try:
            async with asyncio.timeout(seconds), self._settled:
                await self._settled.wait_for(lambda: self.answers_elsewhere(endpoint))
        except TimeoutError:
            _log.info("not all nodes know of another one that answers for endpoint %s", endpoint)

    async def run(self) -> None:
        """Write for ever."""
        complaint = Complaint(_log, "the table of who answers for which endpoint cannot be written: %s")
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted = self._wanted
            if wanted is None or wanted == self._written:
                await self._settle()
                continue
            try:
                content = to_json(RouteFile(self._node_id, self._token(), wanted)).encode()
                await asyncio.to_thread(write_private, self._path, content)
            except (OSError, AgentError) as error:
                complaint.note(str(error))
                self._changed.set()
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            complaint.note("")
            self._written = wanted
            await self._settle()

    async def _settle(self) -> None:
        async with self._settled:
            self._settled.notify_all()
