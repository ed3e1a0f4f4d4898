"""Calls of gRPC that other servers hand on: they come over REST, as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from tiercel.core.errors import NotFoundError
from tiercel.serving.access.callers import Caller
from tiercel.serving.rest.handing import RestHanding, not_here, time_left
from tiercel.serving.rest.messages import HttpRequest, HttpResponse, Respond, error_response
from tiercel.serving.rest.routes import Parameters, Routes
from tiercel.serving.rest.traced import trace_context_of
from tiercel.serving.routing.calls import PATH, CallAnswer, Cancellable
from tiercel.serving.routing.relay import HOPS


class AnswerCall(Protocol):
    """Answers calls of gRPC that other servers hand on."""

    def __call__(
        self,
        method: str,
        message: bytes,
        caller: Caller,
        authorization: bytes,
        allowed: float | None,
        respond: Callable[[CallAnswer | None], None],
        *,
        is_proven: bool,
        trace_context: Mapping[str, str],
    ) -> Cancellable | None:
        """Answer one; returns what to cancel, or None for a method that is not handed on."""


def add_handed_calls(routes: Routes, handing: RestHanding, answer_call: AnswerCall) -> None:
    """Have calls of gRPC answered that other servers hand on."""

    def answer(request: HttpRequest, of: Parameters, respond: Respond) -> Cancellable | None:
        """Answers a gRPC call that another server hands on; for servers alone."""
        if HOPS not in request.headers:
            raise NotFoundError("this is for servers that hand calls on; programs use gRPC")
        caller, is_proven = handing.caller_of(request)

        def answered(found: CallAnswer | None) -> None:
            if found is None:
                respond(error_response(not_here("the model")))
            else:
                respond(HttpResponse(200, found.content, b"application/grpc", found.headers()))

        shown, allowed = request.authorization, time_left(request)
        body = bytes(request.body)
        call = answer_call(
            *(of["method"], body, caller, shown, allowed, answered),
            is_proven=is_proven,
            trace_context=trace_context_of(request.headers),
        )
        if call is None:
            raise NotFoundError(f"{of['method'][:100]} is not handed on")
        return call

    routes.add_cancellable("POST", PATH + "{method}", answer)
