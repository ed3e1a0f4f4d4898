"""Between dataclasses and rows of the tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tiercel.core.endpoints import Delivery, Endpoint
from tiercel.core.events import JobEvent, ShareDecision
from tiercel.core.jobs import Job
from tiercel.core.run_records import RunRecord
from tiercel.core.storage import from_json, to_json


def job_row(job: Job) -> dict[str, Any]:
    """The job without its script's content."""
    return {
        "id": job.id,
        "tenant": job.tenant,
        "state": job.state.value,
        "submitted_at": job.submitted_at,
        "idempotency_key": job.idempotency_key or None,
        "content": to_json(without_script(job)),
    }


def script_row(job: Job) -> dict[str, Any] | None:
    """The content of the job's script, or None when it has no script."""
    return {"job_id": job.id, "content": job.spec.script.content} if job.spec.script else None


def job_from_row(content: str, script: bytes | None) -> Job:
    """The job with its script put back.

    Raises:
        ValueError: The row is damaged.
    """
    job = from_json(Job, content)
    if job.spec.script is not None and script is None:
        msg = f"the script of job {job.id} is missing"
        raise ValueError(msg)
    return _with_script(job, script or b"")


def without_script(job: Job) -> Job:
    """The job, its script without content."""
    return _with_script(job, b"")


def delivery_row(delivery: Delivery) -> dict[str, Any]:
    """The delivery."""
    return {
        "id": delivery.id,
        "job_id": delivery.job_id,
        "state": delivery.state.value,
        "requested_at": delivery.requested_at,
        "content": to_json(delivery),
    }


def endpoint_row(endpoint: Endpoint) -> dict[str, Any]:
    """The endpoint."""
    return {"name": endpoint.name, "tenant": endpoint.tenant, "content": to_json(endpoint)}


def event_row(event: JobEvent) -> dict[str, Any]:
    """The event."""
    return {
        "sequence": event.sequence,
        "job_id": event.job_id,
        "tenant": event.tenant,
        "kind": type(event.change).__name__,
        "at": event.at,
        "content": to_json(event),
    }


def decision_row(decision: ShareDecision) -> dict[str, Any]:
    """The decision."""
    return {"job_id": decision.subject, "at": decision.at, "content": to_json(decision)}


def run_record_row(record: RunRecord) -> dict[str, Any]:
    """What is remembered of a run."""
    return {
        "job_id": record.job_id,
        "workload": record.workload,
        "recorded_at": record.recorded_at,
        "content": to_json(record),
    }


def _with_script(job: Job, content: bytes) -> Job:
    script = job.spec.script
    if script is None:
        return job
    return replace(job, spec=replace(job.spec, script=replace(script, content=content)))
