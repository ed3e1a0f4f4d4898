"""Calls to the broker beside the stream, so that megabytes do not stand in the way of heartbeats."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc
from grpc import aio

from tiercel.core.backoff import Attempts, Backoff
from tiercel.trainer_agent.connection.address import DialError
from tiercel.trainer_agent.connection.dialling import Dialler
from tiercel.trainer_agent.errors import RefusedError, TransferError
from tiercel.v1 import nodes_pb2_grpc

_log = logging.getLogger(__name__)

# What may be otherwise in a moment: the broker is starting, or a connection broke.
MAY_PASS: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL}
)
_OPTIONS: Final = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))

_T = TypeVar("_T")
# gRPC's generated stubs have one type for both kinds of channel.
Stub = Any


@dataclass(frozen=True, slots=True)
class BrokerCalls:
    """Calls the broker in the name of the node."""

    node_id: str  # name of the node
    instance: str  # which agent in which of its lives; see the hello
    dialler: Dialler  # reaches the broker

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What every call carries."""
        return self.dialler.metadata()

    async def retried(
        self,
        call: Callable[[Stub], Awaitable[_T]],
        patience_seconds: float,
        what: str,
        may_pass: Collection[grpc.StatusCode] = MAY_PASS,
    ) -> _T:
        """Call the broker until it answers, within bounds: it may be starting again.

        Args:
            call: The call, and what is done with its answer.
            patience_seconds: How long it is tried, and how long one try may take.
            what: What is taken or given, for the error.
            may_pass: Which refusals may be otherwise in a moment.

        Raises:
            TransferError: The broker refuses, or does not answer in time.
        """
        attempts = Attempts(Backoff(0.1, 3.0))
        try:
            async with asyncio.timeout(patience_seconds):
                while True:
                    try:
                        async with self.dialler.open(_OPTIONS) as channel:
                            return await call(nodes_pb2_grpc.NodesServiceStub(channel))
                    except aio.AioRpcError as error:
                        if error.code() not in may_pass:
                            raise RefusedError(error.code(), error.details() or "") from error
                    except (DialError, asyncio.InvalidStateError) as error:  # not yet there, or just gone
                        _log.debug("%s has to wait: %s", what, error)
                    await asyncio.sleep(attempts.next_seconds())
        except TimeoutError:
            raise TransferError(f"the broker did not take or give {what} within {patience_seconds:g} s") from None
