"""A submit as a part of its client's trace, in the memory of OpenTelemetry's SDK."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tiercel.broker.api.traced import joined
from tiercel.core.current_span import span_ids
from tiercel.core.errors import InvalidSpecError, wrong_field
from tiercel.core.spans import OpenTelemetry
from tiercel.core.traces import JobSpan

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACED = (("authorization", "Bearer x"), ("traceparent", f"00-{TRACE}-{PARENT}-01"))


@pytest.fixture
def memory() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracing(memory: InMemorySpanExporter) -> Iterator[OpenTelemetry]:
    made = OpenTelemetry("tiercel-test", SimpleSpanProcessor(memory), {})
    yield made
    made.close()


def test_the_call_is_a_child_of_its_clients_span_and_leads_to_the_jobs_trace(
    tracing: OpenTelemetry, memory: InMemorySpanExporter
) -> None:
    with joined(tracing, "SubmitJob", TRACED) as leads_to:
        assert span_ids()["trace_id"] == TRACE
        tracing.add(JobSpan("demo", "submit", 1.0, 1.0, is_first=True))
        leads_to("demo")
    first, call = memory.get_finished_spans()
    assert call.parent is not None
    assert (call.name, f"{call.context.trace_id:032x}", f"{call.parent.span_id:016x}") == ("SubmitJob", TRACE, PARENT)
    assert call.attributes == {"tiercel.job": "demo"}
    (link,) = call.links
    assert (link.context.trace_id, link.context.span_id) == (first.context.trace_id, first.context.span_id)


def test_what_was_refused_says_why(tracing: OpenTelemetry, memory: InMemorySpanExporter) -> None:
    with pytest.raises(InvalidSpecError, match="is missing"), joined(tracing, "SubmitJob", TRACED):
        raise wrong_field("metric", "is missing; give one")
    (call,) = memory.get_finished_spans()
    assert "is missing; give one" in (call.status.description or "")


@pytest.mark.parametrize("metadata", [(), (("traceparent", b"\x00"),), (("tracestate", "a=b"),)])
def test_a_client_without_a_trace_costs_no_span(
    metadata: tuple[tuple[str, str | bytes], ...], tracing: OpenTelemetry, memory: InMemorySpanExporter
) -> None:
    for made in (tracing, None):
        with joined(made, "SubmitJob", metadata) as leads_to:
            leads_to("demo")
    assert memory.get_finished_spans() == ()
