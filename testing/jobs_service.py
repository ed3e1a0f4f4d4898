"""A broker that says what a test tells it to: the real wire, no scheduler behind it."""

# ruff: noqa: N802 - the methods have the names of the contract
from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from tiercel import ClientOptions, RetryPolicy
from tiercel.v1 import common_pb2, jobs_pb2, jobs_pb2_grpc, projects_pb2, projects_pb2_grpc

TOKEN = "the-token-of-default"
QUICK = ClientOptions(
    retry=RetryPolicy(attempts=3, first_pause_seconds=0.01, longest_pause_seconds=0.05, patience_seconds=0.2)
)
"""Options of a client that does not wait long for a broker that is away."""
SUBMITTED = Timestamp(seconds=1_700_000_000)
FINAL = {
    jobs_pb2.JOB_STATE_COMPLETED,
    jobs_pb2.JOB_STATE_MISSED,
    jobs_pb2.JOB_STATE_FAILED,
    jobs_pb2.JOB_STATE_CANCELLED,
}


@dataclass
class Refusal:
    """How a call is refused, as the broker's interceptors do it."""

    status: grpc.StatusCode
    code: str
    message: str
    field: str = ""


@dataclass
class Script:
    """What the broker knows, and what it does wrong."""

    jobs: dict[str, jobs_pb2.Job] = field(default_factory=dict)
    events: list[jobs_pb2.JobEvent] = field(default_factory=list)
    logs: dict[str, bytes] = field(default_factory=dict)
    decisions: list[jobs_pb2.Decision] = field(default_factory=list)
    nodes: list[jobs_pb2.Node] = field(default_factory=list)
    endpoints: list[jobs_pb2.Endpoint] = field(default_factory=list)
    # What becomes of a job with the event that ends it.
    ends_with: dict[str, jobs_pb2.Job] = field(default_factory=dict)
    # Taken one by one, by method name.
    refusals: dict[str, list[Refusal]] = field(default_factory=dict)
    # Items after which a stream breaks, once for each entry.
    breaks: list[int] = field(default_factory=list)
    submitted: list[jobs_pb2.SubmitJobRequest] = field(default_factory=list)
    watched_after: list[int] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    open_watches: int = 0
    log_chunk_bytes: int = 4
    log_gap: range = range(0)


def tier_status(number: int, target: float, *, delivered: bool = False) -> jobs_pb2.TierStatus:
    status = jobs_pb2.TierStatus(
        number=number, tier=common_pb2.Tier(target=target, value=1), state=jobs_pb2.TIER_STATE_PENDING
    )
    if delivered:
        status.state = jobs_pb2.TIER_STATE_DELIVERED
        status.reached_value, status.delivered_value = target, target
        status.reached_seconds, status.delivered_seconds, status.version = 4.0, 5.0, number
    return status


def job(
    job_id: str = "j1",
    state: jobs_pb2.JobState.ValueType = jobs_pb2.JOB_STATE_RUNNING,
    *,
    delivered: int = 0,
    reason: str = "",
    best: float | None = None,
) -> jobs_pb2.Job:
    """A job with two tiers, the first so many of them delivered."""
    return jobs_pb2.Job(
        id=job_id,
        tenant="default",
        spec=common_pb2.JobSpec(
            name="digits",
            endpoint="digits",
            module="digits.train",
            metric="accuracy",
            direction=common_pb2.DIRECTION_MAX,
            tiers=[common_pb2.Tier(target=0.9, value=1), common_pb2.Tier(target=0.97, value=2)],
            resources=common_pb2.Resources(cpu_cores=1, memory_bytes=2 << 30),
            max_epochs=100,
            report_timeout_seconds=300,
        ),
        state=state,
        reason=reason,
        submitted_at=SUBMITTED,
        tiers=[tier_status(n, target, delivered=n <= delivered) for n, target in ((1, 0.9), (2, 0.97))],
        epoch=3,
        latest_value=best,
        best_value=best,
        node_id="n1",
        share=common_pb2.Share(cpu_weight=0.5, reason="Half, since two jobs run."),
        cpu_seconds=12.5,
        attempts=1,
    )


def state_changed(
    sequence: int, state: jobs_pb2.JobState.ValueType, reason: str = "", job_id: str = "j1"
) -> jobs_pb2.JobEvent:
    return jobs_pb2.JobEvent(
        sequence=sequence,
        job_id=job_id,
        tenant="default",
        at=SUBMITTED,
        state_changed=jobs_pb2.StateChanged(state=state, reason=reason),
    )


def progress_made(sequence: int, value: float, job_id: str = "j1") -> jobs_pb2.JobEvent:
    progress = jobs_pb2.ProgressMade(epoch=sequence, value=value, metrics={"accuracy": value}, cpu_seconds=1)
    return jobs_pb2.JobEvent(sequence=sequence, job_id=job_id, tenant="default", at=SUBMITTED, progress_made=progress)


def tier_changed(sequence: int, status: jobs_pb2.TierStatus, job_id: str = "j1") -> jobs_pb2.JobEvent:
    return jobs_pb2.JobEvent(
        sequence=sequence,
        job_id=job_id,
        tenant="default",
        at=SUBMITTED,
        tier_changed=jobs_pb2.TierChanged(tier=status),
    )


def share_changed(sequence: int, weight: float, job_id: str = "j1") -> jobs_pb2.JobEvent:
    share = common_pb2.Share(cpu_weight=weight, reason="Because.")
    return jobs_pb2.JobEvent(
        sequence=sequence,
        job_id=job_id,
        tenant="default",
        at=SUBMITTED,
        share_changed=jobs_pb2.ShareChanged(node_id="n1", share=share),
    )


Context = grpc.aio.ServicerContext[Any, Any]


def listed(request: jobs_pb2.ListJobsRequest, jobs: list[jobs_pb2.Job]) -> jobs_pb2.ListJobsResponse:
    """A page of jobs, two of them at most; the token is how many came before."""
    first = int(request.page_token or 0)
    jobs = jobs[::-1] if request.newest_first else jobs
    end = first + min(request.page_size or 2, 2)
    return jobs_pb2.ListJobsResponse(jobs=jobs[first:end], next_page_token=str(end) if end < len(jobs) else "")


class ScriptedJobs(jobs_pb2_grpc.JobsServiceServicer):
    """The service; streams end with the script, unless the job watched is not final: then they stay open."""

    def __init__(self, script: Script) -> None:
        self.script = script

    async def SubmitJob(self, request: jobs_pb2.SubmitJobRequest, context: Context) -> jobs_pb2.SubmitJobResponse:
        self.script.submitted.append(request)
        await self._enter("SubmitJob", context)
        created = job("j1", jobs_pb2.JOB_STATE_PENDING)
        created.spec.CopyFrom(request.spec)
        self.script.jobs.setdefault("j1", created)
        return jobs_pb2.SubmitJobResponse(job=created)

    async def GetJob(self, request: jobs_pb2.GetJobRequest, context: Context) -> jobs_pb2.GetJobResponse:
        await self._enter("GetJob", context)
        return jobs_pb2.GetJobResponse(job=await self._job(request.job_id, context))

    async def ListJobs(self, request: jobs_pb2.ListJobsRequest, context: Context) -> jobs_pb2.ListJobsResponse:
        await self._enter("ListJobs", context)
        jobs = [job for job in self.script.jobs.values() if not (request.active_only and job.state in FINAL)]
        return listed(request, jobs)

    async def CancelJob(self, request: jobs_pb2.CancelJobRequest, context: Context) -> jobs_pb2.CancelJobResponse:
        await self._enter("CancelJob", context)
        cancelled = await self._job(request.job_id, context)
        cancelled.state = jobs_pb2.JOB_STATE_CANCELLED
        return jobs_pb2.CancelJobResponse(job=cancelled)

    async def SuspendJob(self, request: jobs_pb2.SuspendJobRequest, context: Context) -> jobs_pb2.SuspendJobResponse:
        await self._enter("SuspendJob", context)
        suspended = await self._job(request.job_id, context)
        suspended.state, suspended.reason = jobs_pb2.JOB_STATE_SUSPENDED, "suspended by its tenant"
        return jobs_pb2.SuspendJobResponse(job=suspended)

    async def ResumeJob(self, request: jobs_pb2.ResumeJobRequest, context: Context) -> jobs_pb2.ResumeJobResponse:
        await self._enter("ResumeJob", context)
        resumed = await self._job(request.job_id, context)
        resumed.state, resumed.reason = jobs_pb2.JOB_STATE_PENDING, "resumed by its tenant"
        resumed.spec.max_epochs = request.max_epochs or resumed.spec.max_epochs
        return jobs_pb2.ResumeJobResponse(job=resumed)

    async def RetryJob(self, request: jobs_pb2.RetryJobRequest, context: Context) -> jobs_pb2.RetryJobResponse:
        await self._enter("RetryJob", context)
        retried = jobs_pb2.Job()
        retried.CopyFrom(await self._job(request.job_id, context))
        retried.id = "j9" if request.from_scratch else retried.id
        retried.state, retried.reason = jobs_pb2.JOB_STATE_PENDING, "resumed by its tenant"
        return jobs_pb2.RetryJobResponse(job=retried)

    async def SetPriority(self, request: jobs_pb2.SetPriorityRequest, context: Context) -> jobs_pb2.SetPriorityResponse:
        await self._enter("SetPriority", context)
        changed = await self._job(request.job_id, context)
        changed.spec.priority = request.priority
        return jobs_pb2.SetPriorityResponse(job=changed)

    async def ExplainJob(self, request: jobs_pb2.ExplainJobRequest, context: Context) -> jobs_pb2.ExplainJobResponse:
        await self._enter("ExplainJob", context)
        explained = await self._job(request.job_id, context)
        return jobs_pb2.ExplainJobResponse(job=explained, decisions=self.script.decisions)

    async def ExplainEndpoint(
        self, request: jobs_pb2.ExplainEndpointRequest, context: Context
    ) -> jobs_pb2.ExplainEndpointResponse:
        await self._enter("ExplainEndpoint", context)
        found = next((each for each in self.script.endpoints if each.name == request.endpoint), None)
        if found is None:
            message = f"There is no endpoint '{request.endpoint}'."
            await _refuse(Refusal(grpc.StatusCode.NOT_FOUND, "not_found", message, "endpoint"), context)
        return jobs_pb2.ExplainEndpointResponse(endpoint=found, decisions=self.script.decisions)

    async def ListNodes(self, request: jobs_pb2.ListNodesRequest, context: Context) -> jobs_pb2.ListNodesResponse:
        await self._enter("ListNodes", context)
        return jobs_pb2.ListNodesResponse(nodes=self.script.nodes)

    async def ListEndpoints(
        self, request: jobs_pb2.ListEndpointsRequest, context: Context
    ) -> jobs_pb2.ListEndpointsResponse:
        await self._enter("ListEndpoints", context)
        return jobs_pb2.ListEndpointsResponse(endpoints=self.script.endpoints)

    async def DeleteEndpoint(
        self, request: jobs_pb2.DeleteEndpointRequest, context: Context
    ) -> jobs_pb2.DeleteEndpointResponse:
        await self._enter("DeleteEndpoint", context)
        left = [endpoint for endpoint in self.script.endpoints if endpoint.name != request.endpoint]
        if len(left) == len(self.script.endpoints):
            trailing = (("tiercel-error-code", "not_found"), ("tiercel-error-field", "endpoint"))
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no endpoint {request.endpoint!r}", trailing)
        self.script.endpoints[:] = left
        return jobs_pb2.DeleteEndpointResponse()

    async def PromoteVersion(
        self, request: jobs_pb2.PromoteVersionRequest, context: Context
    ) -> jobs_pb2.PromoteVersionResponse:
        await self._enter("PromoteVersion", context)
        return jobs_pb2.PromoteVersionResponse(endpoint=self._chosen(request.endpoint, request.version or 3))

    async def RollBackVersion(
        self, request: jobs_pb2.RollBackVersionRequest, context: Context
    ) -> jobs_pb2.RollBackVersionResponse:
        await self._enter("RollBackVersion", context)
        return jobs_pb2.RollBackVersionResponse(endpoint=self._chosen(request.endpoint, request.version or 2))

    def _chosen(self, name: str, version: int) -> jobs_pb2.Endpoint:
        """The endpoint, which from now on shall answer with this version."""
        endpoint = next(each for each in self.script.endpoints if each.name == name)
        endpoint.live_version, endpoint.pinned = version, version != 3
        return endpoint

    async def WatchJobs(
        self, request: jobs_pb2.WatchJobsRequest, context: Context
    ) -> AsyncIterator[jobs_pb2.WatchJobsResponse]:
        await self._enter("WatchJobs", context)
        self.script.watched_after.append(request.after_sequence)
        wanted = [
            event
            for event in self.script.events
            if event.sequence > request.after_sequence and request.job_id in {"", event.job_id}
        ]
        responses = [jobs_pb2.WatchJobsResponse(event=event) for event in wanted]
        async for response in self._broken(responses, context):
            ended = self.script.ends_with.get(response.event.job_id)
            if ended is not None and response.event.state_changed.state == ended.state:
                self.script.jobs[ended.id] = ended
            yield response
        watched = self.script.jobs.get(request.job_id)
        if not request.only_past and (watched is None or watched.state not in FINAL):
            self.script.open_watches += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.script.open_watches -= 1

    async def StreamLogs(
        self, request: jobs_pb2.StreamLogsRequest, context: Context
    ) -> AsyncIterator[jobs_pb2.StreamLogsResponse]:
        await self._enter("StreamLogs", context)
        output, size = self.script.logs.get(request.job_id, b""), self.script.log_chunk_bytes
        offsets = [at for at in range(request.offset_bytes, len(output), size) if at not in self.script.log_gap]
        responses = [jobs_pb2.StreamLogsResponse(offset_bytes=at, data=output[at : at + size]) for at in offsets]
        async for response in self._broken(responses, context):
            yield response

    async def _broken(self, responses: list[Any], context: Context) -> AsyncIterator[Any]:
        left = self.script.breaks.pop(0) if self.script.breaks else None
        for index, response in enumerate(responses):
            if index == left:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            yield response

    async def _enter(self, method: str, context: Context) -> None:
        self.script.calls.append(method)
        if ("authorization", f"Bearer {TOKEN}") not in (context.invocation_metadata() or ()):
            message = "The token belongs to no tenant."
            await _refuse(Refusal(grpc.StatusCode.UNAUTHENTICATED, "not_authenticated", message), context)
        if refusals := self.script.refusals.get(method):
            await _refuse(refusals.pop(0), context)

    async def _job(self, job_id: str, context: Context) -> jobs_pb2.Job:
        if job_id not in self.script.jobs:
            message = f"There is no job '{job_id}'; see 'tiercel ls'."
            await _refuse(Refusal(grpc.StatusCode.NOT_FOUND, "not_found", message, "job_id"), context)
        return self.script.jobs[job_id]


async def _refuse(refusal: Refusal, context: Context) -> NoReturn:
    metadata = (("tiercel-error-code", refusal.code), ("tiercel-error-field", refusal.field))
    await context.abort(refusal.status, refusal.message, metadata)


class ScriptedProjects(projects_pb2_grpc.ProjectsServiceServicer):
    """Has every object already."""

    async def FindMissingObjects(
        self, request: projects_pb2.FindMissingObjectsRequest, context: Context
    ) -> projects_pb2.FindMissingObjectsResponse:
        return projects_pb2.FindMissingObjectsResponse(project_limit_bytes=1024**2)

    async def SendObjects(
        self, request_iterator: AsyncIterator[projects_pb2.SendObjectsRequest], context: Context
    ) -> projects_pb2.SendObjectsResponse:
        raise AssertionError("nothing is missing")


@contextlib.asynccontextmanager
async def serving(script: Script, port: int = 0) -> AsyncIterator[str]:
    """The service on a loopback port; yields its address."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    jobs_pb2_grpc.add_JobsServiceServicer_to_server(ScriptedJobs(script), server)
    projects_pb2_grpc.add_ProjectsServiceServicer_to_server(ScriptedProjects(), server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield f"127.0.0.1:{bound}"
    finally:
        await server.stop(grace=None)


@contextlib.contextmanager
def serving_in_thread(script: Script) -> Iterator[str]:
    """The same for tests of blocking code, which has no event loop to serve in."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="scripted-broker")
    thread.start()

    def run(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(20)

    context = serving(script)
    try:
        yield run(context.__aenter__())
    finally:
        run(context.__aexit__(None, None, None))
        run(loop.shutdown_asyncgens())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
