"""What is current while a request is answered, in the memory of OpenTelemetry's SDK."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tiercel.core.current_span import span_ids
from tiercel.core.spans import OpenTelemetry
from tiercel.serving.rest.head import Head
from tiercel.serving.rest.messages import HttpRequest, HttpStream, Respond
from tiercel.serving.rest.traced import traced


def test_what_is_logged_while_a_request_is_answered_names_its_span() -> None:
    memory = InMemorySpanExporter()
    tracing = OpenTelemetry("tiercel-test", SimpleSpanProcessor(memory), {})
    seen: list[dict[str, str]] = []

    def infer(request: HttpRequest, parameters: Mapping[str, str], respond: Respond) -> None:
        seen.append(span_ids())
        respond(b"HTTP/1.1 200 OK\r\n\r\n")

    handle = traced("infer", infer, tracing, lambda: "n1")
    for _ in range(2):
        handle(HttpRequest(Head(b"POST", b"/", {}), b""), {"model": "digits"}, lambda _: None)
    spans = memory.get_finished_spans()
    assert [each["span_id"] for each in seen] == [f"{span.context.span_id:016x}" for span in spans]
    assert span_ids() == {}
    tracing.close()


@pytest.mark.parametrize("error", ["", "the time is up"])
def test_the_span_of_a_stream_goes_to_its_end_and_says_how_it_was(error: str) -> None:
    memory = InMemorySpanExporter()
    tracing = OpenTelemetry("tiercel-test", SimpleSpanProcessor(memory), {})
    stream = HttpStream(b"text/event-stream")
    handle = traced("generate_stream", lambda _, __, respond: respond(stream), tracing, lambda: "n1")
    handle(HttpRequest(Head(b"POST", b"/", {}), b""), {"model": "gpt"}, lambda _: None)
    assert memory.get_finished_spans() == ()
    stream.end(error)
    (span,) = memory.get_finished_spans()
    assert (span.name, span.status.description or "") == ("generate_stream", error)
    tracing.close()
