"""A collector of traces as OpenTelemetry's exporters know them: OTLP over real gRPC."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


@dataclass(frozen=True, slots=True)
class CollectedSpan:
    """A span as it was sent."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    error: str
    attributes: dict[str, Any]


class TraceCollector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self._spans: list[CollectedSpan] = []
        self._lock = threading.Lock()
        self.address = ""

    @property
    def environment(self) -> dict[str, str]:
        """By which a process sends its traces here, soon."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{self.address}", "OTEL_BSP_SCHEDULE_DELAY": "50"}

    def of(self, trace_id: str) -> list[CollectedSpan]:
        """The spans of a trace, in the order in which they were sent."""
        with self._lock:
            return [each for each in self._spans if each.trace_id == trace_id]

    def Export(  # noqa: N802 - the protocol's name
        self, request: trace_service_pb2.ExportTraceServiceRequest, _: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        for of_resource in request.resource_spans:
            service = {each.key: each.value.string_value for each in of_resource.resource.attributes}["service.name"]
            for span in (span for scope in of_resource.scope_spans for span in scope.spans):
                told = {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in span.attributes}
                ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
                with self._lock:
                    self._spans.append(CollectedSpan(service, span.name, *ids, span.status.message, told))
        return trace_service_pb2.ExportTraceServiceResponse()


@contextlib.contextmanager
def trace_collector() -> Iterator[TraceCollector]:
    """One that listens until the context ends."""
    collector = TraceCollector()
    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
        collector.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield collector
        finally:
            server.stop(None).wait()
