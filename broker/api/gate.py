"""Who gets in, decided from a call's metadata before its body is read, and how many calls each may have at once.

What stands before authentication is small: without a token there is nothing but health checks and reflection, with a
few places for all who ask like that. A call that is refused costs its headers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import grpc

from tiercel.broker.api.auth import arriving_caller, node_token_error
from tiercel.broker.api.errors import translated_errors
from tiercel.broker.api.handlers import as_stream, call
from tiercel.broker.api.node_doors import certificate_of
from tiercel.broker.api.recording import STRANGER
from tiercel.broker.tenancy import Caller
from tiercel.core.errors import OverloadedError, TiercelError, UnavailableError
from tiercel.core.roles import Role
from tiercel.core.tasks import run_until_one_ends

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tiercel.broker.access.people.people import People
    from tiercel.broker.access.rates import CallRates
    from tiercel.broker.api.auth import Context
    from tiercel.broker.api.matrix import Matrix
    from tiercel.broker.api.recording import Recorder
    from tiercel.broker.api.strangers import Strangers
    from tiercel.broker.tenancy import Tenancy
    from tiercel.broker.trust.membership import Membership

    Handler = grpc.RpcMethodHandler[Any, Any]

# What is no part of the contract and may be called by anybody, with few places for those without a token.
PUBLIC = ("/grpc.health.v1.Health/", "/grpc.reflection.")
# Of all tenants together the listener takes more; one alone must not fill it.
CALLS_OF_A_TENANT = 200
# Of everybody without a token: unary checks, and streams; and of one connection.
PUBLIC_CHECKS = 16
PUBLIC_STREAMS = 16
PUBLIC_CALLS_OF_A_CONNECTION = 8
# Of machines that want to join.
JOINS = 16
JOINS_OF_A_CONNECTION = 2
# Of the operator.
OPERATOR_CALLS = 16
# How long a stream without a token may last; whoever still watches opens another.
PUBLIC_STREAM_SECONDS = 300.0
# Between two looks whether a stream's caller may go on.
LOOK_SECONDS = 0.5


class Places:
    """How many calls there may be at once, in all and of one caller.

    Args:
        of: Who shares them, for the sentence that refuses.
        of_one: How many of one caller.
        in_all: How many together; None if only each caller counts.
    """

    def __init__(self, of: str, of_one: int, in_all: int | None = None) -> None:
        self._of = of
        self._of_one = of_one
        self._in_all = in_all
        self._taken: Counter[str] = Counter()

    @contextlib.contextmanager
    def taken(self, caller: str) -> Iterator[None]:
        """Hold a place inside.

        Raises:
            OverloadedError: There is none.
        """
        if self._taken[caller] >= self._of_one:
            raise OverloadedError(f"{self._of} may have {self._of_one} calls at the same time; end one first")
        if self._in_all is not None and self._taken.total() >= self._in_all:
            raise OverloadedError(
                f"{self._of} have {self._in_all} calls together, and all are taken; try again, or send a tenant's token"
            )
        self._taken[caller] += 1
        try:
            yield
        finally:
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]


class TenantsGate(grpc.aio.ServerInterceptor):
    """Of the tenants' listener: lets callers call what their role may, and everybody check health.

    Args:
        matrix: Who may call what.
        rates: How often each token may call.
        people: Knows those who signed in at a provider; None where nobody does.
    """

    def __init__(
        self,
        tenancy: Tenancy,
        matrix: Matrix,
        recorder: Recorder,
        strangers: Strangers,
        rates: CallRates,
        people: People | None = None,
    ) -> None:
        self._rates = rates
        self._tenancy = tenancy
        self._people = people
        self._matrix = matrix
        self._recorder = recorder
        self._strangers = strangers
        self._tenants = Places("a tenant", CALLS_OF_A_TENANT)
        self._checks = Places("callers without a token", PUBLIC_CALLS_OF_A_CONNECTION, PUBLIC_CHECKS)
        self._streams = Places("callers without a token", PUBLIC_CALLS_OF_A_CONNECTION, PUBLIC_STREAMS)
        self._joins = Places("machines that join", JOINS_OF_A_CONNECTION, JOINS)
        self._operators = Places("the operator", OPERATOR_CALLS)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The method's handler behind what is checked first, or one that refuses without reading."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        method, caller = handler_call_details.method, STRANGER
        if method.startswith(PUBLIC):
            return await self._public(handler, handler_call_details)
        try:
            rule = self._matrix.rule(method)
            if Role.ANYBODY in rule.roles:
                return _guarded(self._recorder.recorded(handler, rule, method, lambda _: STRANGER), self._joins)
            caller = await arriving_caller(handler_call_details.invocation_metadata, self._tenancy, self._people)
            self._rates.check(caller, asyncio.get_running_loop().time())
            self._matrix.check(method, caller.role)
        except TiercelError as error:
            return self._recorder.refusing(error, method, caller)
        return self._known(self._recorder.recorded(handler, rule, method, lambda _: caller), caller, handler)

    async def _public(self, handler: Handler, details: grpc.HandlerCallDetails) -> Handler:
        try:
            caller = await arriving_caller(details.invocation_metadata, self._tenancy, self._people)
        except TiercelError:
            if handler.response_streaming:
                return _guarded(handler, self._streams, seconds=PUBLIC_STREAM_SECONDS)
            return _guarded(handler, self._checks)
        return self._known(handler, caller, handler)

    def _known(self, found: Handler, caller: Caller, method: Handler) -> Handler:
        """Of somebody who is known: what was found for a method, with a place, and for as long as the token is good."""
        if (method.response_streaming or method.request_streaming) and self._tenancy.can_end(caller):
            found = _while_good(found, lambda: self._tenancy.check(caller))
        if caller.tenant is None:
            return _guarded(found, self._operators, caller=caller.token, strangers=self._strangers)
        return _guarded(found, self._tenants, caller=caller.tenant.name, strangers=self._strangers)


class NodesGate(grpc.aio.ServerInterceptor):
    """Of the agents' listener: lets only agents in.

    Args:
        matrix: Who may call what.
    """

    def __init__(self, tenancy: Tenancy, matrix: Matrix, recorder: Recorder) -> None:
        self._tenancy = tenancy
        self._matrix = matrix
        self._recorder = recorder

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The method's handler, or one that refuses without reading."""
        method = handler_call_details.method
        error = node_token_error(handler_call_details.invocation_metadata, self._tenancy)
        if error is not None:
            return self._recorder.refusing(error, method)
        handler = await continuation(handler_call_details)
        try:
            if handler is not None:
                self._matrix.check(method, Role.AGENT)
        except TiercelError as refusal:
            return self._recorder.refusing(refusal, method)
        return handler


class MembersGate(grpc.aio.ServerInterceptor):
    """Of the agents' encrypted listener: lets only members in, before what they ask is read.

    Args:
        matrix: Who may call what.
    """

    def __init__(self, membership: Membership, matrix: Matrix, recorder: Recorder, strangers: Strangers) -> None:
        self._membership = membership
        self._strangers = strangers
        self._matrix = matrix
        self._recorder = recorder

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The method's handler behind a look at the caller's certificate."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        method = handler_call_details.method
        try:
            rule = self._matrix.check(method, Role.AGENT)
        except TiercelError as error:
            return self._recorder.refusing(error, method)
        if handler.request_streaming:
            # A stream's own first message says which node it is about; a refusal that met it would be lost.
            return self._recorder.watched(handler, method)
        recorded = self._recorder.recorded(handler, rule, method, self._member)

        async def enter(requests: object, context: Context) -> None:
            async with translated_errors(context):
                await call(recorded, requests, context)

        return as_stream(handler, enter)

    def _member(self, context: Context) -> Caller:
        node = self._membership.node_of(certificate_of(context))
        self._strangers.know(context.peer())
        return Caller(Role.AGENT, node)


def _guarded(
    handler: Handler,
    places: Places,
    *,
    caller: str = "",
    seconds: float | None = None,
    strangers: Strangers | None = None,
) -> Handler:
    """The same method, entered with a place that it gives back at its end; with ``strangers`` the caller is none."""

    async def enter(requests: object, context: Context) -> None:
        if strangers is not None:
            strangers.know(context.peer())
        async with translated_errors(context):
            with places.taken(caller or context.peer()):
                try:
                    async with asyncio.timeout(seconds) as limit:
                        await call(handler, requests, context)
                except TimeoutError:
                    if not limit.expired():
                        raise
                    message = f"without a token a stream lasts {seconds:g} s; open another, or send a tenant's token"
                    raise UnavailableError(message) from None

    return as_stream(handler, enter)


def _while_good(handler: Handler, check: Callable[[], None]) -> Handler:
    """The same method, which ends with the error of a check that fails."""

    async def look() -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            check()

    async def enter(requests: object, context: Context) -> None:
        await run_until_one_ends(call=call(handler, requests, context), look=look())

    return as_stream(handler, enter)
