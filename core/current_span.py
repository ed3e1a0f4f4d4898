"""The span that is current here, whoever made it. OpenTelemetry is not imported for it: who has one, has that."""

from __future__ import annotations

import sys
from typing import Any, Final

_NAME: Final = "opentelemetry.trace"
_MOST_STATE: Final = 512
"""Characters of ``tracestate`` that everybody has to pass on (W3C Trace Context, 2021); more is left out."""


def span_ids() -> dict[str, str]:
    """``trace_id`` and ``span_id``, hexadecimal, of a span that is recorded; nothing where none is current."""
    span = _current()
    if span is None or not span.is_recording():
        return {}
    context = span.get_span_context()
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def trace_context() -> dict[str, str]:
    """``traceparent`` and ``tracestate`` for whoever is asked now, by W3C Trace Context; nothing without a span."""
    span = _current()
    context = None if span is None else span.get_span_context()
    if context is None or not context.is_valid:
        return {}
    told = {"traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"}
    state = str(context.trace_state.to_header())
    return told | {"tracestate": state} if 0 < len(state) <= _MOST_STATE and state.isascii() else told


def _current() -> Any:
    current = getattr(sys.modules.get(_NAME), "get_current_span", None)  # none as well while it is being imported
    return None if current is None else current()
