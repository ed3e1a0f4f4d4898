"""Requests over REST as spans of the traces that their callers began, and that other nodes go on with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from tiercel.core.errors import TiercelError
from tiercel.serving.rest.messages import HttpResponse, HttpStream
from tiercel.serving.routing.calls import Cancellable

if TYPE_CHECKING:
    from tiercel.core.traces import RequestSpan, Tracing
    from tiercel.serving.rest.messages import HttpRequest, Respond

    Handler = Callable[[HttpRequest, Mapping[str, str], Respond], Cancellable | None]

TRACEPARENT: Final = b"traceparent"
TRACESTATE: Final = b"tracestate"
GAVE_UP: Final = "the caller went away before it was answered"
# Of an answer that is given as bytes, with its status line.
_STATUS: Final = slice(9, 12)


def trace_context_of(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """What a request says of the trace that it is part of."""
    return {name.decode(): headers[name].decode("latin-1") for name in (TRACEPARENT, TRACESTATE) if name in headers}


def traced(name: str, answer_to: Handler, tracing: Tracing, node_id: Callable[[], str]) -> Handler:
    """Answers as ``answer_to`` does, in a span that is the parent of those of other nodes.

    Args:
        name: Of the spans.
        answer_to: Answers requests; a stream's span goes to its end.
        tracing: Makes spans.
        node_id: Of this node; empty for unknown.
    """

    def handle(request: HttpRequest, parameters: Mapping[str, str], respond: Respond) -> Cancellable | None:
        attributes = {"tiercel.model": parameters["model"], "tiercel.node": node_id()}
        span = tracing.begin(name, trace_context_of(request.headers), request.arrived, attributes)

        def answered(answer: HttpResponse | HttpStream | bytes) -> None:
            if isinstance(answer, HttpStream):
                answer.on_end = span.end
                respond(answer)
                return
            status = int(answer[_STATUS]) if isinstance(answer, bytes) else answer.status
            span.end(f"HTTP {status}" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "")
            respond(answer)

        # Requests share heads, which nobody changes.
        head = request.head
        request.head = replace(head, headers={**head.headers, TRACEPARENT: span.traceparent.encode()})
        try:
            with span.current():
                work = answer_to(request, parameters, answered)
        except Exception as error:
            span.end(error.message if isinstance(error, TiercelError) else repr(error))
            raise
        return None if work is None else _Traced(work, span)

    return handle


class _Traced:
    """What to cancel, with its span."""

    def __init__(self, work: Cancellable, span: RequestSpan) -> None:
        self._work = work
        self._span = span

    def cancel(self) -> None:
        """The caller has gone."""
        self._span.end(GAVE_UP)
        self._work.cancel()
