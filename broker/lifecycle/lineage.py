"""Works out where a version comes from, of what is stored anyway: endpoint, job, deliveries and events."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Any

from tiercel.broker.lifecycle.environment import environment_of
from tiercel.broker.lifecycle.versions import kept
from tiercel.core.data_sets import DataSet
from tiercel.core.endpoints import Delivery, Endpoint, Version
from tiercel.core.events import JobEvent, ProgressMade, StateChanged
from tiercel.core.jobs import Job, JobState
from tiercel.core.lineage import MAX_CURVE_POINTS, CurvePoint, Lineage, thinned
from tiercel.core.runs import run_id_of


def lineage_of(
    endpoint: Endpoint,
    version: Version,
    job: Job | None,
    deliveries: Iterable[Delivery] = (),
    events: Sequence[JobEvent] = (),
) -> Lineage:
    """Where a version comes from.

    Args:
        endpoint: The endpoint.
        version: One of its versions.
        job: The job that trained it, with the content of its script; None where it is not known any more.
        deliveries: The job's.
        events: The job's, the oldest first, as far as they are kept.
    """
    asked_at = next((each.requested_at for each in deliveries if each.version == version.version), version.delivered_at)
    before = [event for event in events if event.at <= asked_at]
    reports = [(event, event.change) for event in before if isinstance(event.change, ProgressMade)]
    return Lineage(
        endpoint=endpoint.name,
        version=version.version,
        job_id=version.job_id,
        tier=version.tier,
        metric=version.metric,
        value=version.value,
        delivered_at=datetime.fromtimestamp(version.delivered_at, UTC),
        model_sha256=version.sha256,
        variant=version.variant,
        live=version in endpoint.live,
        pinned=version in endpoint.live and version.variant in endpoint.pinned,
        kept=version in kept(endpoint),
        held=version.held,
        direction=version.direction,
        node_id=endpoint.node_of(version),
        deployed_by=version.deployed_by,
        file=version.file,
        metrics=_best(job, [made for _, made in reports]),
        curve=thinned(
            [
                CurvePoint(made.epoch, made.value, event.at - (job.submitted_at if job else event.at), made.cpu_seconds)
                for event, made in reports
            ],
            MAX_CURVE_POINTS,
        ),
        **(_of_job(job, before) if job is not None else {}),
    )


def _of_job(job: Job, before: Sequence[JobEvent]) -> dict[str, Any]:
    spec = job.spec
    runs = _runs_begun(before) or (1 if job.attempts == 1 else 0)
    environment = environment_of(job, runs)
    return {
        "job_name": spec.name,
        "labels": spec.labels,
        "run_id": run_id_of(job.id, runs) if runs else "",
        "submitted_at": datetime.fromtimestamp(job.submitted_at, UTC),
        "script": spec.script.name if spec.script is not None else "",
        "script_sha256": hashlib.sha256(spec.script.content).hexdigest() if spec.script is not None else "",
        "module": spec.module,
        "command": spec.command,
        "image": spec.image,
        "project_sha256": spec.project.sha256 if spec.project is not None else "",
        "commit": spec.project.commit if spec.project is not None else "",
        "dirty": spec.project is not None and spec.project.dirty,
        "arguments": spec.arguments,
        "env": spec.env,
        "data": tuple(_data_words(each, job.data_sha256.get(each.name, each.sha256)) for each in spec.data),
        "requirements": spec.requirements,
        "environment": environment.key,
        "image_id": environment.image_id,
        "warm_start": spec.warm_start,
    }


def _data_words(data: DataSet, sha256: str) -> str:
    """A data set with where it came from and what it was, as far as that is known."""
    if not data.url:
        return data.name
    source = f"{data.name} from {data.url.partition('?')[0]}"
    return f"{source}, SHA-256 {sha256}" if sha256 else source


def _best(job: Job | None, reports: Sequence[ProgressMade]) -> Mapping[str, float]:
    """What was reported of the weights that a job keeps, which are its best; of a job that is forgotten, the latest."""
    counted = [report for report in reports if not math.isnan(report.value)]
    if not counted:
        return {}
    if job is None:
        return counted[-1].metrics
    best = reduce(job.spec.direction.better, (report.value for report in counted))
    return next(report.metrics for report in counted if report.value == best)


def _runs_begun(events: Iterable[JobEvent]) -> int:
    """How many runs were begun; one that its node had not heard of is begun a second time, and counts once."""
    states = [event.change.state for event in events if isinstance(event.change, StateChanged)]
    was = [None, *states]
    return sum(
        now is JobState.STARTING and before is not JobState.STARTING for before, now in zip(was, states, strict=False)
    )
