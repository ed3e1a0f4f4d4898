"""Spans of OpenTelemetry; only :mod:`.tracing` imports this, since OpenTelemetry may not be installed."""

from __future__ import annotations

import hashlib
import threading
import time
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
    use_span,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tiercel import __version__
from tiercel.core.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from opentelemetry.sdk.trace import SpanProcessor

    from tiercel.core.traces import JobSpan

_CLOSE_SECONDS: Final = 2.0
_MOST_CHARACTERS: Final = 1024
_NANOSECONDS: Final = 1e9
_PROPAGATOR: Final = TraceContextTextMapPropagator()


class OneRequest:
    """See :class:`.RequestSpan`."""

    __slots__ = ("_span", "traceparent")

    def __init__(self, span: Span) -> None:
        self._span = span
        context = span.get_span_context()
        self.traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def current(self) -> AbstractContextManager[object]:
        """See :meth:`.RequestSpan.current`."""
        return use_span(self._span, record_exception=False, set_status_on_exception=False)

    def leads_to(self, job_id: str) -> None:
        """See :meth:`.RequestSpan.leads_to`."""
        self._span.set_attribute("tiercel.job", job_id)
        self._span.add_link(SpanContext(*_ids_of(job_id), is_remote=True))

    def end(self, error: str = "") -> None:
        """See :meth:`.RequestSpan.end`."""
        if self._span.is_recording():
            if error:
                self._span.set_status(Status(StatusCode.ERROR, error[:_MOST_CHARACTERS]))
            self._span.end()


class OpenTelemetry:
    """Makes the spans of one process, see :class:`.Tracing`.

    Args:
        service: Its name.
        processor: Takes spans that are over.
        environment: May name the service otherwise.
    """

    def __init__(self, service: str, processor: SpanProcessor, environment: Mapping[str, str]) -> None:
        self._ids = _Ids()
        name = environment.get("OTEL_SERVICE_NAME") or service
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": name, "service.version": __version__}),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("tiercel", __version__)

    def begin(
        self, name: str, trace_context: Mapping[str, str], arrived: float, attributes: Mapping[str, str]
    ) -> OneRequest:
        """See :meth:`.Tracing.begin`."""
        ago = time.perf_counter() - arrived if arrived else 0.0
        span = self._tracer.start_span(
            name,
            _PROPAGATOR.extract(trace_context, Context()),
            SpanKind.SERVER,
            # Who asks may be anybody: of spans that wait to be sent, each has a bound.
            {key: text[:_MOST_CHARACTERS] for key, text in attributes.items()},
            start_time=time.time_ns() - int(ago * _NANOSECONDS),
        )
        return OneRequest(span)

    def add(self, span: JobSpan) -> None:
        """See :meth:`.Tracing.add`."""
        trace_id, first_id = _ids_of(span.job_id)
        if span.is_first:
            self._ids.fixed = trace_id, first_id
            context = Context()
        else:
            # As the first one was, whichever process or life of the broker made that.
            decision = self._provider.sampler.should_sample(None, trace_id, span.name).decision
            flags = TraceFlags(TraceFlags.SAMPLED if decision is Decision.RECORD_AND_SAMPLE else TraceFlags.DEFAULT)
            parent = SpanContext(trace_id, first_id, is_remote=True, trace_flags=flags)
            context = set_span_in_context(NonRecordingSpan(parent), Context())
        attributes = {"tiercel.job": span.job_id, **span.attributes}
        begin, end = int(span.begin * _NANOSECONDS), int(span.end * _NANOSECONDS)
        try:
            made = self._tracer.start_span(span.name, context, attributes=attributes, start_time=begin)
        finally:
            self._ids.fixed = None
        if span.error:
            made.set_status(Status(StatusCode.ERROR, span.error[:_MOST_CHARACTERS]))
        made.end(max(begin, end))

    def close(self) -> None:
        """See :meth:`.Tracing.close`."""
        closing = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        closing.start()
        closing.join(_CLOSE_SECONDS)


class _Ids(RandomIdGenerator):
    """Random ids but for the first span of a job."""

    def __init__(self) -> None:
        self.fixed: tuple[int, int] | None = None

    def generate_trace_id(self) -> int:
        """See the base."""
        return self.fixed[0] if self.fixed is not None else super().generate_trace_id()

    def generate_span_id(self) -> int:
        """See the base."""
        return self.fixed[1] if self.fixed is not None else super().generate_span_id()


def exporting(service: str, environment: Mapping[str, str]) -> OpenTelemetry:
    """Traces that are sent to where OpenTelemetry's variables say.

    Raises:
        ImportError: What sends them is not installed.
        SetupError: They name an exporter that there is not.
    """
    name = environment.get("OTEL_TRACES_EXPORTER") or "otlp"
    if name == "otlp":
        protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get(
            "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"
        )
        name = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"
    found = entry_points(group="opentelemetry_traces_exporter", name=name)
    if not found:
        raise SetupError(
            f"no exporter {name!r} is installed, as OTEL_TRACES_EXPORTER or OTEL_EXPORTER_OTLP_PROTOCOL say; give otlp "
            "or none, or install it"
        )
    exporter = next(iter(found)).load()
    return OpenTelemetry(service, BatchSpanProcessor(exporter()), environment)


def _ids_of(job_id: str) -> tuple[int, int]:
    """Of a job's trace and of its first span."""
    digest = hashlib.sha256(f"tiercel job {job_id}".encode()).digest()
    return int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])
