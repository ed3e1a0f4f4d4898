"""Handlers whose calls are written down: changes before they are done, and whatever was refused."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import grpc

from tiercel.broker.access.audit import Subject
from tiercel.broker.access.peers import Peers
from tiercel.broker.api.errors import translated_errors
from tiercel.broker.api.handlers import answer, as_stream, call, request_of
from tiercel.broker.tenancy import Caller
from tiercel.core.addresses import caller_at, network_of, split_address
from tiercel.core.audit import DONE
from tiercel.core.errors import (
    NotAllowedError,
    NotAuthenticatedError,
    NotFoundError,
    RateExceededError,
    TiercelError,
)
from tiercel.core.roles import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from tiercel.broker.access.audit import Audit
    from tiercel.broker.api.auth import Context
    from tiercel.broker.api.matrix import Rule

    Handler = grpc.RpcMethodHandler[Any, Any]

STRANGER = Caller(Role.ANYBODY, "")
_REFUSALS = (NotAllowedError, NotAuthenticatedError, NotFoundError)


class Recorder:
    """Writes calls down."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._strangers = Peers()

    def refusing(self, error: TiercelError, method: str, caller: Caller = STRANGER) -> Handler:
        """A handler that refuses without reading.

        Args:
            error: Why.
            method: What was called, ``/package.Service/Method``.
            caller: By whom.
        """

        async def refuse(requests: object, context: Context) -> None:
            del requests
            async with translated_errors(context):
                self._audit.refuse(_subject(caller, method, context), error.code)
                raise error

        # As a stream, whatever the method is: of a unary call gRPC would read the request first.
        return grpc.stream_stream_rpc_method_handler(refuse)

    def recorded(self, handler: Handler, rule: Rule, method: str, who: Callable[[Context], Caller]) -> Handler:
        """The same method, written down.

        Args:
            handler: The method's.
            rule: What the method says of its callers.
            method: Its name, ``/package.Service/Method``.
            who: Who calls; an error if that is nobody who may.
        """

        async def enter(requests: object, context: Context) -> None:
            caller = STRANGER
            try:
                caller = who(context)
                request = await request_of(handler, requests, context)
            except _REFUSALS as error:
                self._audit.refuse(_subject(caller, method, context), error.code)
                raise
            subject = _subject(caller, method, context, _named(rule.objects, request))
            if rule.changes:
                await self._change(handler, rule, request, context, subject)
                return
            try:
                await answer(handler, request, context)
            except _REFUSALS as error:
                self._audit.refuse(subject, error.code)
                raise

        return as_stream(handler, enter)

    def watched(self, handler: Handler, method: str) -> Handler:
        """A method that looks itself at who calls: that it refused somebody is written down.

        Args:
            handler: The method's.
            method: Its name, ``/package.Service/Method``.
        """

        async def enter(requests: object, context: Context) -> None:
            try:
                await call(handler, requests, context)
            except grpc.aio.AbortError:
                if context.code() is grpc.StatusCode.UNAUTHENTICATED:
                    self._audit.refuse(_subject(STRANGER, method, context), NotAuthenticatedError.code)
                raise

        return as_stream(handler, enter)

    async def _change(self, handler: Handler, rule: Rule, request: object, context: Context, subject: Subject) -> None:
        is_stranger = subject.role == Role.ANYBODY
        if is_stranger and not self._strangers.try_take(network_of(subject.peer), asyncio.get_running_loop().time()):
            raise RateExceededError("there are too many such calls from your address; try again in a few seconds")
        number, outcome = await self._audit.begin(subject), "cancelled"
        try:
            response = await answer(handler, request, context)
            subject = dataclasses.replace(subject, object=_named(rule.objects, request, response))
            outcome = DONE
        except TiercelError as error:
            outcome = error.code
            raise
        except Exception:  # a defect is written down as one, and told as ever
            outcome = TiercelError.code
            raise
        finally:
            self._audit.end(number, subject, outcome)


def _subject(caller: Caller, method: str, context: Context, named: str = "") -> Subject:
    service, _, name = method.rpartition("/")
    tenant = caller.tenant.name if caller.tenant is not None else ""
    short = f"{service.rpartition('.')[2]}.{name}"
    return Subject(caller.token, tenant, caller.role.value, short, _address_of(context.peer()), named)


def _address_of(peer: str) -> str:
    """Of ``ipv4:127.0.0.1:4242`` what stays the same from one connection to the next."""
    try:
        return split_address(caller_at(peer))[0]
    except ValueError:
        return peer


def _named(paths: Sequence[str], *messages: object) -> str:
    """What messages have in fields such as ``job.id``, each from the first that has it; spaces between."""
    found = (next(filter(None, (_words_at(path, message) for message in messages)), "") for path in paths)
    return " ".join(filter(None, found))


def _words_at(path: str, message: object) -> str:
    found: Any = message
    for part in path.split("."):
        found = getattr(found, part, None)
    if isinstance(found, str):
        return found
    return " ".join(map(str, found)) if isinstance(found, Sequence) else ""
