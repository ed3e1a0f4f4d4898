"""Secrets of runs: fetched when a run starts, given to its program, and kept nowhere."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from tiercel.trainer_agent.connection.calls import BrokerCalls, Stub
from tiercel.trainer_agent.errors import RefusedError, RunFailedError
from tiercel.v1 import nodes_pb2


@dataclass(frozen=True, slots=True)
class SecretFetcher:
    """Fetches the values of secrets from the broker."""

    calls: BrokerCalls  # to the broker
    patience_seconds: float = 120.0  # how long it is tried while the broker does not answer

    async def fetch(self, run_id: str) -> dict[str, str]:
        """The secrets of a run that is about to start, by name.

        Raises:
            TransferError: They did not come.
            RunFailedError: One is not there any more, which only its owner can change.
        """
        try:
            return await self.calls.retried(
                lambda stub: self._fetch(stub, run_id), self.patience_seconds, "its secrets"
            )
        except RefusedError as error:
            if error.status is grpc.StatusCode.INVALID_ARGUMENT:
                raise RunFailedError(f"It cannot have its secrets: {error.details}.") from None
            raise

    async def _fetch(self, stub: Stub, run_id: str) -> dict[str, str]:
        request = nodes_pb2.FetchSecretsRequest(node_id=self.calls.node_id, run_id=run_id, instance=self.calls.instance)
        response = await stub.FetchSecrets(request, metadata=self.calls.metadata())
        return dict(response.values)
