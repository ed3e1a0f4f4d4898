"""Routes that are a method of the contract each: what is asked as its request, and its answer as JSON.

The JSON is that of the command line. A route says by its method who may ask: :mod:`tiercel.broker.api.matrix`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format

from tiercel.broker.conversion import endpoint_explanation_from_proto, endpoint_from_proto
from tiercel.broker.dashboard.asked import MAX_BODY_BYTES, Asked
from tiercel.core.errors import InvalidRequestError
from tiercel.core.file_views import FileInfo
from tiercel.core.jsonable import Json, json_of
from tiercel.core.lineage import Lineage
from tiercel.core.policies import PolicyChoice
from tiercel.core.predictions import PredictionRecord
from tiercel.core.status import ClusterStatus
from tiercel.core.views import Explanation, JobInfo
from tiercel.core.what_if import WhatIf
from tiercel.core.wire import from_proto
from tiercel.v1 import files_pb2, jobs_pb2, lineage_pb2, policy_pb2, status_pb2, what_if_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from google.protobuf.message import Message

    from tiercel.broker.api.auth import Context

JOBS_SHOWN, MOST_JOBS_SHOWN = 50, 500


@dataclass(frozen=True, slots=True)
class Route:
    """What is asked, and what answers."""

    verb: str  # of HTTP
    path: str  # with its parts in braces
    method: str  # of the contract, ``Service/Method``: its rule holds, and it answers where there is no ``read``
    request: Callable[[Asked], Message]  # its request; where there is a ``read``, made before the body is there
    answer: Callable[[Any], Any] = lambda found: found  # its answer as JSON types, or as text
    read: Callable[[Asked, Context], Awaitable[Any]] | None = None  # answers in its place
    # Answers in its place, with server-sent events.
    follow: Callable[[Asked, Context], AsyncGenerator[bytes]] | None = None
    most_bytes: int = MAX_BODY_BYTES  # of the body, where there is a ``read``

    @property
    def full_method(self) -> str:
        """As calls carry it."""
        return f"/tiercel.v1.{self.method}"


def translations() -> tuple[Route, ...]:
    """The routes that need nothing but the contract."""
    return (
        Route("GET", "status", "StatusService/GetStatus", lambda _: status_pb2.GetStatusRequest(), _status),
        Route("GET", "jobs", "JobsService/ListJobs", _jobs_request, _jobs),
        Route("GET", "jobs/{job}", "JobsService/GetJob", _about_job(jobs_pb2.GetJobRequest), _job),
        Route(
            "GET",
            "jobs/{job}/explain",
            "JobsService/ExplainJob",
            _about_job(jobs_pb2.ExplainJobRequest),
            lambda found: from_proto(Explanation, found).to_json(),
        ),
        Route(
            "GET",
            "jobs/{job}/files",
            "FilesService/ListFiles",
            _about_job(files_pb2.ListFilesRequest),
            lambda found: [from_proto(FileInfo, file).to_json() for file in found.files],
        ),
        Route("POST", "jobs/{job}/cancel", "JobsService/CancelJob", _about_job(jobs_pb2.CancelJobRequest), _job),
        Route("POST", "jobs/{job}/suspend", "JobsService/SuspendJob", _about_job(jobs_pb2.SuspendJobRequest), _job),
        Route("POST", "jobs/{job}/resume", "JobsService/ResumeJob", _resume_request, _job),
        Route("POST", "jobs/{job}/retry", "JobsService/RetryJob", _retry_request, _job),
        Route("POST", "jobs/{job}/priority", "JobsService/SetPriority", _priority_request, _job),
        Route("GET", "endpoints", "JobsService/ListEndpoints", lambda _: jobs_pb2.ListEndpointsRequest(), _endpoints),
        Route("GET", "endpoints/{endpoint}", "JobsService/ExplainEndpoint", _explain_request, _endpoint),
        Route(
            "GET",
            "endpoints/{endpoint}/explain",
            "JobsService/ExplainEndpoint",
            _explain_request,
            lambda found: endpoint_explanation_from_proto(found).to_json(),
        ),
        Route(
            "GET",
            "endpoints/{endpoint}/lineage",
            "LineageService/GetLineage",
            lambda a: lineage_pb2.GetLineageRequest(endpoint=a.part("endpoint")),
            lambda found: [from_proto(Lineage, each).to_json() for each in found.versions],
        ),
        Route("GET", "policy", "PolicyService/GetPolicy", lambda _: policy_pb2.GetPolicyRequest(), _policy),
        Route("POST", "policy", "PolicyService/SetPolicy", _policy_request, _policy),
        Route(
            "POST",
            "what-if",
            "WhatIfService/AskWhatIf",
            _what_if_request,
            lambda found: from_proto(WhatIf, found).to_json(),
        ),
        Route(
            "GET",
            "predictions",
            "WhatIfService/ListPredictions",
            lambda asked: what_if_pb2.ListPredictionsRequest(job_id=asked.text("job")),
            lambda found: from_proto(PredictionRecord, found).to_json(),
        ),
        Route("POST", "endpoints/{endpoint}/promote", "JobsService/PromoteVersion", _promote_request, _endpoint),
        Route("POST", "endpoints/{endpoint}/rollback", "JobsService/RollBackVersion", _roll_back_request, _endpoint),
    )


def _about_job(kind: Callable[..., Message]) -> Callable[[Asked], Message]:
    return lambda asked: kind(job_id=asked.part("job"))


def _status(found: status_pb2.GetStatusResponse) -> Json:
    return from_proto(ClusterStatus, found).to_json()


def _jobs_request(asked: Asked) -> jobs_pb2.ListJobsRequest:
    if asked.text("state") not in {"", "active"}:
        raise InvalidRequestError("state: is active, or left out for all jobs", field="state")
    return jobs_pb2.ListJobsRequest(
        active_only=asked.text("state") == "active",
        page_size=asked.number("limit", JOBS_SHOWN, MOST_JOBS_SHOWN),
        page_token=asked.text("after"),
        newest_first=True,
    )


def _jobs(found: jobs_pb2.ListJobsResponse) -> Json:
    return {
        "jobs": [from_proto(JobInfo, job).to_json() for job in found.jobs],
        "next": found.next_page_token or None,
    }


def _job(found: Any) -> Json:
    return from_proto(JobInfo, found.job).to_json()


def _resume_request(asked: Asked) -> jobs_pb2.ResumeJobRequest:
    return jobs_pb2.ResumeJobRequest(job_id=asked.part("job"), max_epochs=asked.count("max_epochs"))


def _retry_request(asked: Asked) -> jobs_pb2.RetryJobRequest:
    return jobs_pb2.RetryJobRequest(
        job_id=asked.part("job"),
        from_scratch=asked.flag("from_scratch"),
        idempotency_key=asked.words("idempotency_key"),
    )


def _priority_request(asked: Asked) -> jobs_pb2.SetPriorityRequest:
    return jobs_pb2.SetPriorityRequest(job_id=asked.part("job"), priority=asked.whole("priority"))


def _policy_request(asked: Asked) -> policy_pb2.SetPolicyRequest:
    options = asked.field("options") or {}
    if not isinstance(options, dict) or not all(isinstance(each, str) for each in options.values()):
        raise InvalidRequestError("options: are no object of texts", field="options")
    return policy_pb2.SetPolicyRequest(name=asked.words("name"), options=options)


def _policy(found: Any) -> Json:
    told: Json = json_of(from_proto(PolicyChoice, found.policy))
    return {**told, "names": list(found.names)} if isinstance(found, policy_pb2.GetPolicyResponse) else told


def _what_if_request(asked: Asked) -> what_if_pb2.AskWhatIfRequest:
    change = {} if (given := asked.field("change")) is None else given
    if not isinstance(change, dict):
        raise InvalidRequestError("change: is no JSON object", field="change")
    try:
        return json_format.ParseDict({"changes": change}, what_if_pb2.AskWhatIfRequest())
    except (json_format.ParseError, ValueError, RecursionError) as error:
        raise InvalidRequestError(f"change: cannot be understood ({str(error)[:200]})", field="change") from None


def _explain_request(asked: Asked) -> jobs_pb2.ExplainEndpointRequest:
    return jobs_pb2.ExplainEndpointRequest(endpoint=asked.part("endpoint"))


def _endpoints(found: jobs_pb2.ListEndpointsResponse) -> list[Json]:
    return [endpoint_from_proto(each).to_json() for each in found.endpoints]


def _endpoint(found: Any) -> Json:
    return endpoint_from_proto(found.endpoint).to_json()


def _promote_request(asked: Asked) -> jobs_pb2.PromoteVersionRequest:
    return jobs_pb2.PromoteVersionRequest(
        endpoint=asked.part("endpoint"), version=asked.count("version"), pin=asked.flag("pin")
    )


def _roll_back_request(asked: Asked) -> jobs_pb2.RollBackVersionRequest:
    numbers = {name: asked.count(name) for name in ("version", "instead_of")}
    return jobs_pb2.RollBackVersionRequest(endpoint=asked.part("endpoint"), **numbers)
