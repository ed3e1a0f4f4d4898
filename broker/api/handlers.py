"""Handlers of gRPC's methods as the gate runs them: whatever a method is, as a stream, its request read by us."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import TYPE_CHECKING, Any

import grpc

from tiercel.core.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tiercel.broker.api.auth import Context

    Handler = grpc.RpcMethodHandler[Any, Any]

# A request comes with its headers or soon after them.
REQUEST_SECONDS = 10.0


def as_stream(handler: Handler, enter: Callable[[Any, Context], Awaitable[None]]) -> Handler:
    """A handler that enters something else in a method's place."""
    return grpc.stream_stream_rpc_method_handler(
        enter,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


async def call(handler: Handler, requests: object, context: Context) -> None:
    """Run a method to its end."""
    await answer(handler, await request_of(handler, requests, context), context)


async def request_of(handler: Handler, requests: object, context: Context) -> Any:
    """What a method takes: its one request, or all of them.

    Raises:
        UnavailableError: It does not come.
    """
    return requests if handler.request_streaming else await _request(context)


async def answer(handler: Handler, request: object, context: Context) -> object:
    """Run a method with what it takes; returns its answer, or None where that is a stream."""
    found = _method(handler)(request, context)
    if inspect.isasyncgen(found):
        async with contextlib.aclosing(found):
            async for response in found:
                await context.write(response)
        return None
    response = await found
    if handler.response_streaming:
        return None
    await context.write(response)
    return response


def _method(handler: Handler) -> Callable[[Any, Context], Any]:
    kinds: tuple[Callable[[Any, Any], Any] | None, ...] = (
        handler.unary_unary,
        handler.unary_stream,
        handler.stream_unary,
        handler.stream_stream,
    )
    return next(method for method in kinds if method is not None)


async def _request(context: Context) -> object:
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            request = await context.read()
    except TimeoutError:
        raise UnavailableError(f"no request came within {REQUEST_SECONDS:g} s of the call; send it again") from None
    if request is grpc.aio.EOF:
        raise UnavailableError("the call ended without a request; send one")
    return request
