"""A job's life as one trace: a real broker, an agent that does as it is told, the memory of OpenTelemetry's SDK."""

from __future__ import annotations

from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from testing.brokers import make_settings, node_token, tenant_of, tenant_token
from testing.jobs import make_spec
from testing.scripted_agent import ScriptedAgent
from testing.until import until
from tiercel.broker.client.client import Client
from tiercel.broker.server import Broker
from tiercel.core.spans import OpenTelemetry


async def test_from_submission_to_delivery_a_job_is_one_trace(tmp_path: Path) -> None:
    memory = InMemorySpanExporter()
    tracing = OpenTelemetry("tiercel-broker", SimpleSpanProcessor(memory), {})
    async with Broker(make_settings(tmp_path), tracing) as broker:
        agent = ScriptedAgent(node_token(tmp_path), "n1")
        async with (
            agent.connected(broker.nodes_address),
            tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice,
        ):
            job = await alice.submit()
            run = await agent.wait_run(f"{job.id}-1")
            agent.report(run.run_id, 0.85)  # a tier
            await until(lambda: any(span.name == "delivery" for span in memory.get_finished_spans()))
    spans = memory.get_finished_spans()
    assert [span.name for span in spans][:5] == ["submit", "place", "run start", "tier reached", "delivery"]
    assert {span.context.trace_id for span in spans} == {spans[0].context.trace_id}
    assert {span.parent.span_id for span in spans[1:5] if span.parent is not None} == {spans[0].context.span_id}
    assert all(span.attributes is not None and span.attributes["tiercel.job"] == job.id for span in spans)
    assert spans[2].attributes == {"tiercel.job": job.id, "tiercel.node": "n1"}


async def test_a_submit_is_part_of_its_clients_trace(tmp_path: Path) -> None:
    memory = InMemorySpanExporter()
    tracing = OpenTelemetry("tiercel-broker", SimpleSpanProcessor(memory), {})
    async with (
        Broker(make_settings(tmp_path), tracing) as broker,
        Client(broker.broker_address, token=tenant_token(tmp_path)) as client,
    ):
        with TracerProvider().get_tracer("test").start_as_current_span("sweep") as own:
            job = await client.submit(make_spec())
        assert (await job.refresh()).id == job.id  # beyond the span
    spans = {span.name: span for span in memory.get_finished_spans()}
    call, first = spans["SubmitJob"], spans["submit"]
    parent = own.get_span_context()
    assert call.parent is not None
    assert (call.context.trace_id, call.parent.span_id) == (parent.trace_id, parent.span_id)
    assert [link.context.span_id for link in call.links] == [first.context.span_id]
    assert first.context.trace_id != call.context.trace_id


async def test_a_retry_and_a_resume_are_parts_of_their_clients_trace(tmp_path: Path) -> None:
    memory = InMemorySpanExporter()
    tracing = OpenTelemetry("tiercel-broker", SimpleSpanProcessor(memory), {})
    async with (
        Broker(make_settings(tmp_path), tracing) as broker,
        Client(broker.broker_address, token=tenant_token(tmp_path)) as client,
    ):
        job = await client.submit(make_spec())
        await job.cancel()
        await job.wait(timeout=90)
        with TracerProvider().get_tracer("test").start_as_current_span("by hand") as own:
            await client.resume_job(job.id)
            await job.cancel()
            await job.wait(timeout=90)
            again = await client.retry_job(job.id, from_scratch=True)
    spans = {span.name: span for span in memory.get_finished_spans()}
    parent = own.get_span_context()
    for name, led_to in (("ResumeJob", job.id), ("RetryJob", again.id)):
        call = spans[name]
        assert call.parent is not None
        assert (call.context.trace_id, call.parent.span_id) == (parent.trace_id, parent.span_id)
        assert (call.attributes or {})["tiercel.job"] == led_to
