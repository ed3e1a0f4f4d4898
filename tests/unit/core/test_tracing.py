"""Traces: asked for by OpenTelemetry's variables, in the memory of its SDK."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tiercel.core.current_span import trace_context
from tiercel.core.logs import JsonLines
from tiercel.core.spans import OpenTelemetry
from tiercel.core.traces import JobSpan
from tiercel.core.tracing import open_tracing

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def memory() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracing(memory: InMemorySpanExporter) -> Iterator[OpenTelemetry]:
    made = OpenTelemetry("tiercel-test", SimpleSpanProcessor(memory), {})
    yield made
    made.close()


def test_a_request_goes_on_with_its_callers_trace(tracing: OpenTelemetry, memory: InMemorySpanExporter) -> None:
    trace_context = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=b"}
    span = tracing.begin("infer", trace_context, time.perf_counter() - 5.0, {"tiercel.model": "m"})
    version, trace_id, span_id, flags = span.traceparent.split("-")
    span.end("HTTP 503")
    span.end()
    (told,) = memory.get_finished_spans()
    assert (version, trace_id, flags) == ("00", TRACE, "01")
    assert told.context.span_id == int(span_id, 16)
    assert told.parent is not None
    assert (told.parent.span_id, told.parent.trace_state.get("a")) == (int(PARENT, 16), "b")
    assert (told.status.description, told.attributes) == ("HTTP 503", {"tiercel.model": "m"})
    assert told.end_time is not None
    assert told.start_time is not None
    assert told.end_time - told.start_time >= 5e9
    assert told.resource.attributes["service.name"] == "tiercel-test"


@pytest.mark.parametrize(
    "traceparent", ["", "x" * 10_000, f"00-{'0' * 32}-{PARENT}-01", "00-a\r\nb-c-d", f"00-{TRACE}-{PARENT}-01\n"]
)
def test_what_is_malformed_is_the_beginning_of_a_trace(
    traceparent: str, tracing: OpenTelemetry, memory: InMemorySpanExporter
) -> None:
    tracing.begin("infer", {"traceparent": traceparent}, 0.0, {}).end()
    (told,) = memory.get_finished_spans()
    assert told.parent is None or told.context.trace_id == int(TRACE, 16)


def test_of_a_name_of_any_length_a_bounded_part_waits(tracing: OpenTelemetry, memory: InMemorySpanExporter) -> None:
    tracing.begin("infer", {}, 0.0, {"tiercel.model": "m" * 10_000_000}).end("e" * 10_000_000)
    (told,) = memory.get_finished_spans()
    assert told.attributes is not None
    assert told.attributes["tiercel.model"] == "m" * 1024
    assert len(told.status.description or "") == 1024


def test_what_its_caller_does_not_record_is_not_recorded(tracing: OpenTelemetry, memory: InMemorySpanExporter) -> None:
    span = tracing.begin("infer", {"traceparent": f"00-{TRACE}-{PARENT}-00"}, 0.0, {})
    assert span.traceparent.startswith(f"00-{TRACE}-")
    assert span.traceparent.endswith("-00")
    span.end("failed")
    assert memory.get_finished_spans() == ()


def test_all_of_a_jobs_life_is_one_trace_whichever_process_tells_it(memory: InMemorySpanExporter) -> None:
    first, second = (OpenTelemetry("tiercel-test", SimpleSpanProcessor(memory), {}) for _ in range(2))
    first.add(JobSpan("demo-1", "submit", 10.0, 10.0, {"tiercel.tenant": "alice"}, is_first=True))
    first.add(JobSpan("other-1", "submit", 10.0, 10.0, is_first=True))
    second.add(JobSpan("demo-1", "delivery", 12.5, 13.0, {"tiercel.tier": 1}, error='bad "\n'))
    submit, other, delivery = memory.get_finished_spans()
    assert submit.parent is None
    assert delivery.parent is not None
    assert (delivery.context.trace_id, delivery.parent.span_id) == (submit.context.trace_id, submit.context.span_id)
    assert other.context.trace_id != submit.context.trace_id
    assert (delivery.start_time, delivery.end_time) == (12_500_000_000, 13_000_000_000)
    assert delivery.attributes == {"tiercel.job": "demo-1", "tiercel.tier": 1}
    assert delivery.status.description == 'bad "\n'


def test_a_job_is_sampled_as_a_whole(memory: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    tracing = OpenTelemetry("tiercel-test", SimpleSpanProcessor(memory), {})
    for number in range(100):
        for name in ("submit", "run"):
            tracing.add(JobSpan(f"j-{number}", name, 1.0, 2.0, is_first=name == "submit"))
    told = memory.get_finished_spans()
    assert 20 < len({span.context.trace_id for span in told}) < 80
    assert len(told) == 2 * len({span.context.trace_id for span in told})


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
    ],
)
def test_who_does_not_ask_for_traces_gets_none(environment: dict[str, str]) -> None:
    assert open_tracing("tiercel-test", environment) is None


def test_what_is_missing_is_said_and_nothing_else_fails(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.WARNING):
        assert open_tracing("tiercel-test", {"OTEL_TRACES_EXPORTER": "nonesuch"}) is None
        monkeypatch.setitem(sys.modules, "tiercel.core.spans", None)
        assert open_tracing("tiercel-test", {"OTEL_TRACES_EXPORTER": "otlp"}) is None
    assert "no exporter 'nonesuch' is installed" in caplog.messages[0]
    assert "install 'tiercel[otel]'" in caplog.messages[1]


def test_what_is_logged_while_a_span_is_current_names_it_until_it_is_over(
    tracing: OpenTelemetry, memory: InMemorySpanExporter
) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines({}))
    logger = logging.Logger("test")  # noqa: LOG001 - known to nobody else
    logger.addHandler(handler)
    span = tracing.begin("infer", {"traceparent": f"00-{TRACE}-{PARENT}-01"}, 0.0, {})
    unrecorded = tracing.begin("infer", {"traceparent": f"00-{TRACE}-{PARENT}-00"}, 0.0, {})
    logger.warning("before")
    with span.current():
        logger.warning("within")
        with unrecorded.current():
            logger.warning("not recorded")
        span.end()
        logger.warning("over")
    lines = {line["message"]: line for line in map(json.loads, stream.getvalue().splitlines())}
    (told,) = memory.get_finished_spans()
    assert (lines["within"]["trace_id"], lines["within"]["span_id"]) == (TRACE, f"{told.context.span_id:016x}")
    assert [name for name, line in lines.items() if "trace_id" in line or "span_id" in line] == ["within"]


def test_where_opentelemetry_was_not_imported_nothing_is_and_no_trace_is_named() -> None:
    program = """
import logging, sys
from tiercel.core.current_span import span_ids, trace_context
from tiercel.core.logs import JsonLines
line = JsonLines({}).format(logging.LogRecord("x", 30, "", 1, "hello", (), None))
assert (span_ids(), trace_context()) == ({}, {}), line
assert "trace_id" not in line
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_whoever_is_asked_is_told_of_the_span_that_is_current(tracing: OpenTelemetry) -> None:
    assert trace_context() == {}
    for flags, state, told in (
        ("01", "a=b", {"tracestate": "a=b"}),
        ("00", "", {}),
        ("01", ",".join(f"k{number}={'v' * 200}" for number in range(4)), {}),
    ):
        span = tracing.begin("any", {"traceparent": f"00-{TRACE}-{PARENT}-{flags}", "tracestate": state}, 0.0, {})
        with span.current():
            assert trace_context() == {"traceparent": span.traceparent, **told}
    assert trace_context() == {}
