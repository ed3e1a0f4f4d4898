"""One gRPC channel to a broker: deadlines, the tenant's token, error translation, streams that survive a break."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import grpc

from tiercel.broker.client.errors import from_rpc_error
from tiercel.broker.client.given_token import ShownToken
from tiercel.broker.client.options import ClientOptions, channel_options
from tiercel.core.addresses import split_address
from tiercel.core.current_span import trace_context
from tiercel.core.errors import (
    NotAuthenticatedError,
    OverloadedError,
    RateExceededError,
    TiercelError,
    UnavailableError,
    wrong_field,
)
from tiercel.core.trust.trust import AUTHORITY_VARIABLE, PIN_VARIABLE, Trust, is_loopback
from tiercel.v1 import PROTOCOL, PROTOCOL_KEY
from tiercel.v1.files_pb2_grpc import FilesServiceStub
from tiercel.v1.jobs_pb2_grpc import JobsServiceStub
from tiercel.v1.projects_pb2_grpc import ProjectsServiceStub

if TYPE_CHECKING:
    from pathlib import Path

    from tiercel.core.trust.pinning import Believed

# What gRPC says of a call that ended while something was written to it, whatever its status was.
_CUT_OFF = "Internal error from Core"

Request = TypeVar("Request", contravariant=True)
Response = TypeVar("Response")
Item = TypeVar("Item")


class UnaryMethod(Protocol[Request, Response]):
    """A method of a stub with one answer."""

    def __call__(
        self, request: Request, *, timeout: float | None = None, metadata: Any = None
    ) -> grpc.aio.UnaryUnaryCall[Any, Response]:
        """Call it."""


class StreamMethod(Protocol[Request, Response]):
    """A method of a stub with a stream of answers."""

    def __call__(self, request: Request, *, metadata: Any = None) -> grpc.aio.UnaryStreamCall[Any, Response]:
        """Call it."""


class Connection:
    """A channel to the broker on behalf of one tenant.

    Args:
        address: ``host:port``.
        token: The tenant's secret, or the file that has it; sent with each call, told nowhere.
        options: Deadlines and retries.
        believed: What TLS needs to know of the broker; None for a broker on this machine.

    Raises:
        InvalidSpecError: The broker is elsewhere, and nothing says how to know it.
    """

    def __init__(
        self, address: str, token: str | Path, options: ClientOptions, believed: Believed | None = None
    ) -> None:
        self.address = address
        self._token = ShownToken(token)
        self._options = options
        self.channel = _channel(address, options, believed)
        self.stub = JobsServiceStub(self.channel)
        self.projects = ProjectsServiceStub(self.channel)
        self.files = FilesServiceStub(self.channel)

    @classmethod
    async def open(cls, address: str, token: str | Path, options: ClientOptions, trust: Trust) -> Self:
        """A channel to a broker that is known by what ``trust`` says, if it says anything.

        Raises:
            TiercelError: Whoever answers there is not the broker, or nobody answers; nothing was sent.
        """
        if not trust:
            return cls(address, token, options)
        from tiercel.core.trust.pinning import believe  # takes a while to import

        return cls(address, token, options, await believe(address, trust))

    async def close(self) -> None:
        """End it; calls under way fail."""
        await self.channel.close()

    async def call(self, method: UnaryMethod[Request, Response], request: Request) -> Response:
        """Call a method with one answer; where that was too often, again when the broker says, within the deadline.

        Raises:
            TiercelError: What the broker answered, or that it does not answer.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + self._options.deadline_seconds
        while True:
            try:
                return await method(request, timeout=max(until - clock(), 0.0), metadata=self._metadata())
            except grpc.aio.AioRpcError as failure:
                error = from_rpc_error(failure, self.address)
                if not isinstance(error, RateExceededError) or clock() + error.seconds >= until:
                    raise error from failure
            # Nothing was done. Jitter, so that many who were told the same do not come back together.
            await asyncio.sleep(error.seconds * (1 + random.random() / 4))  # noqa: S311

    async def send(self, method: Any, requests: AsyncGenerator[Request], *, seconds: float) -> Any:
        """Call a method that takes a stream; returns its one answer.

        Args:
            method: A method of a stub.
            requests: What is sent.
            seconds: How long the call may take.

        Raises:
            TiercelError: What the broker answered, or that it does not answer.
        """
        call = method(timeout=seconds, metadata=self._metadata())
        try:
            # Written here, not by gRPC: what goes wrong in the iterator is then raised as what it is.
            async with aclosing(requests):
                # The broker may end the call at any time; why is in the call's status.
                with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
                    async for request in requests:
                        await call.write(request)
                    await call.done_writing()
            return await call
        except grpc.aio.AioRpcError as error:
            if error.details() == _CUT_OFF:
                raise UnavailableError(
                    f"The call to the broker at {self.address} was cut off in the middle; look whether it still runs "
                    "with 'tiercel status', and try again."
                ) from error
            raise from_rpc_error(error, self.address) from error
        finally:
            call.cancel()

    async def stream(self, method: StreamMethod[Request, Response], request: Request) -> AsyncGenerator[Response]:
        """The answers of one call of a streaming method.

        Raises:
            TiercelError: What the broker answered, or that the connection broke.
        """
        call = method(request, metadata=self._metadata())
        try:
            async for response in call:
                yield response
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, self.address) from error
        finally:
            call.cancel()

    async def resumed(self, attempt: Callable[[], AsyncGenerator[Item]]) -> AsyncGenerator[Item]:
        """What ``attempt`` yields, begun anew whenever the connection breaks, or a token that is renewed runs out.

        Args:
            attempt: Opens the stream behind what was seen last.

        Raises:
            TiercelError: What the broker answered; or, after so long without an item, that it does not answer.
        """
        retry = self._options.retry
        clock = asyncio.get_running_loop().time
        failures, failing_since = 0, 0.0
        while True:
            shown = self._token.text()
            try:
                async with aclosing(attempt()) as items:
                    async for item in items:
                        failures = 0
                        yield item
            except (UnavailableError, OverloadedError, RateExceededError) as error:
                failing_since = failing_since if failures else clock()
                failures += 1
                least = error.seconds if isinstance(error, RateExceededError) else 0.0
                self._check_patience(error, clock() - failing_since + least)
            except NotAuthenticatedError:
                # It ran out; whoever keeps the file has put the next one there, which other calls may show already.
                if not self._token.differs_from(shown):
                    raise
                continue
            else:
                return
            # Jitter spreads load; nothing secret depends on it.
            await asyncio.sleep(max(least, retry.pause_seconds(failures, random.random())))  # noqa: S311

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        own = ("authorization", f"Bearer {self._token.text()}"), (PROTOCOL_KEY, str(PROTOCOL))
        return (*own, *trace_context().items())

    def _check_patience(self, error: TiercelError, seconds: float) -> None:
        if seconds >= self._options.retry.patience_seconds:
            raise error


def _channel(address: str, options: ClientOptions, believed: Believed | None) -> grpc.aio.Channel:
    if address:
        try:
            split_address(address)
        except ValueError as error:
            raise wrong_field("address", f"{error}, as 'tiercel up' prints it") from error
    if believed is not None:
        credentials = grpc.ssl_channel_credentials(believed.roots)
        return grpc.aio.secure_channel(address, credentials, [*channel_options(options), *believed.channel_options])
    if address and not is_loopback(address):
        raise wrong_field(
            "address",
            f"{address} is another machine, to which no token is sent unencrypted; set {PIN_VARIABLE} to the "
            f"pin that the broker's 'tiercel up --listen' prints, or {AUTHORITY_VARIABLE} to the file of its authority",
        )
    return grpc.aio.insecure_channel(address, channel_options(options))
