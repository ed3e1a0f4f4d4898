"""Scripts of jobs: named in the wanted state by what they contain, and fetched when a run starts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from tiercel.trainer_agent.connection.calls import BrokerCalls, Stub
from tiercel.trainer_agent.errors import TransferError
from tiercel.v1 import nodes_pb2

_MAX_BYTES: Final = 16 * 1024**2


@dataclass(frozen=True, slots=True)
class ScriptFetcher:
    """Fetches the content of scripts from the broker."""

    calls: BrokerCalls  # to the broker
    patience_seconds: float = 120.0  # how long it is tried while the broker does not answer

    async def fetch(self, run_id: str, sha256: str) -> bytes:
        """The content of a run's script.

        Raises:
            TransferError: It did not come, or is something else.
        """
        content = await self.calls.retried(lambda stub: self._fetch(stub, run_id), self.patience_seconds, "its script")
        if hashlib.sha256(content).hexdigest() != sha256:
            raise TransferError("its script arrived damaged: its SHA-256 differs")
        return content

    async def _fetch(self, stub: Stub, run_id: str) -> bytes:
        request = nodes_pb2.FetchScriptRequest(node_id=self.calls.node_id, run_id=run_id, instance=self.calls.instance)
        content = bytearray()
        async for response in stub.FetchScript(request, metadata=self.calls.metadata()):
            content += response.data
            if len(content) > _MAX_BYTES:
                raise TransferError(f"its script has more than {_MAX_BYTES} bytes")
        return bytes(content)
