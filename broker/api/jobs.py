"""The service for tenants."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from tiercel.broker.actors.endpoint_messages import VersionChosen
from tiercel.broker.actors.job_pages import JOBS_AT_A_TIME
from tiercel.broker.api import pages
from tiercel.broker.api.auth import tenant_of
from tiercel.broker.api.endpoints import endpoint_told
from tiercel.broker.api.projects import check_project
from tiercel.broker.api.traced import joined
from tiercel.broker.api.translation import job_to_proto, node_to_proto, spec_from_proto
from tiercel.core.errors import InvalidSpecError, wrong_field
from tiercel.core.events import StateChanged, subject_of_endpoint
from tiercel.core.validation import validate_spec
from tiercel.core.wire import to_proto
from tiercel.v1 import jobs_pb2, jobs_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tiercel.broker.actors.hard_deadlines import HardDeadlines
    from tiercel.broker.actors.journal import Journal
    from tiercel.broker.actors.service import BrokerService
    from tiercel.broker.api.auth import Context
    from tiercel.broker.store.logs import RunLogs
    from tiercel.broker.store.projects import ProjectStore
    from tiercel.broker.store.sql import Store
    from tiercel.broker.tenancy import Tenancy
    from tiercel.core.jobs import Job, JobSpec
    from tiercel.core.tenants import Tenant
    from tiercel.core.traces import Tracing

EVENTS_AT_A_TIME = 500
DECISIONS_SHOWN = 50
# What a database's integers hold.
MAX_SEQUENCE = 2**62
MAX_KEY_CHARACTERS = 128
LOG_POLL_SECONDS = 1.0


class JobsService(jobs_pb2_grpc.JobsServiceServicer):
    """Translates tenants' calls; see ``protos/tiercel/v1/jobs.proto``.

    Args:
        tenancy: Who may call.
        deadlines: Says which hard ones can be promised.
        tracing: Makes spans of submits, retries and resumes that are part of a trace; None for none.
    """

    def __init__(
        self,
        service: BrokerService,
        journal: Journal,
        store: Store,
        logs: RunLogs,
        tenancy: Tenancy,
        projects: ProjectStore,
        deadlines: HardDeadlines,
        tracing: Tracing | None = None,
    ) -> None:
        self._service = service
        self._journal = journal
        self._store = store
        self._logs = logs
        self._tenancy = tenancy
        self._projects = projects
        self._deadlines = deadlines
        self._tracing = tracing

    async def SubmitJob(self, request: jobs_pb2.SubmitJobRequest, context: Context) -> jobs_pb2.SubmitJobResponse:
        """Create a job."""
        tenant = tenant_of(context, self._tenancy)
        with joined(self._tracing, "SubmitJob", context.invocation_metadata()) as leads_to:
            job = await self._submit(tenant, request)
            leads_to(job.id)
        return jobs_pb2.SubmitJobResponse(job=job_to_proto(job))

    async def _submit(self, tenant: Tenant, request: jobs_pb2.SubmitJobRequest) -> Job:
        _check_key(request.idempotency_key)
        spec = spec_from_proto(request.spec)
        validate_spec(spec)
        try:
            await check_project(self._projects, tenant.name, spec)
        except InvalidSpecError:
            await self._service.check(tenant, spec)  # what else is wrong is said before a project is sent
            raise
        return await self._admit(tenant, spec, request.idempotency_key)

    async def _admit(self, tenant: Tenant, spec: JobSpec, key: str) -> Job:
        if key and await self._store.find_job(tenant.name, key) is not None:  # what was admitted is not judged again
            return await self._service.submit(tenant, spec, key)
        async with self._deadlines.checked(tenant, spec) as words:
            return await self._service.submit(tenant, spec, key, words)

    async def GetJob(self, request: jobs_pb2.GetJobRequest, context: Context) -> jobs_pb2.GetJobResponse:
        """Show a job."""
        tenant = tenant_of(context, self._tenancy)
        job = self._service.explained(await self._service.find_job(tenant.name, request.job_id))
        return jobs_pb2.GetJobResponse(job=job_to_proto(job))

    async def ListJobs(self, request: jobs_pb2.ListJobsRequest, context: Context) -> jobs_pb2.ListJobsResponse:
        """List a page of the tenant's jobs."""
        tenant = tenant_of(context, self._tenancy)
        limit = min(request.page_size or JOBS_AT_A_TIME, JOBS_AT_A_TIME)
        jobs = await self._service.jobs_of(
            tenant.name,
            active_only=request.active_only,
            after=pages.place_of(request.page_token),
            newest_first=request.newest_first,
            limit=limit,
        )
        token = pages.token_of(jobs[-1].submitted_at, jobs[-1].id) if len(jobs) == limit else ""
        shown = [job_to_proto(self._service.explained(job)) for job in jobs]
        return jobs_pb2.ListJobsResponse(jobs=shown, next_page_token=token)

    async def CancelJob(self, request: jobs_pb2.CancelJobRequest, context: Context) -> jobs_pb2.CancelJobResponse:
        """Ask a job to stop."""
        tenant = tenant_of(context, self._tenancy)
        return jobs_pb2.CancelJobResponse(job=job_to_proto(await self._service.cancel(tenant.name, request.job_id)))

    async def ResumeJob(self, request: jobs_pb2.ResumeJobRequest, context: Context) -> jobs_pb2.ResumeJobResponse:
        """Let a job that has ended go on."""
        tenant = tenant_of(context, self._tenancy)
        with joined(self._tracing, "ResumeJob", context.invocation_metadata()) as leads_to:
            ended = await self._service.find_job(tenant.name, request.job_id)
            await check_project(self._projects, tenant.name, ended.spec)  # it may be gone by now
            job = await self._service.resume(tenant, request.job_id, request.max_epochs)
            leads_to(job.id)
        return jobs_pb2.ResumeJobResponse(job=job_to_proto(job))

    async def SuspendJob(self, request: jobs_pb2.SuspendJobRequest, context: Context) -> jobs_pb2.SuspendJobResponse:
        """Have a job free what it holds and wait."""
        tenant = tenant_of(context, self._tenancy)
        return jobs_pb2.SuspendJobResponse(job=job_to_proto(await self._service.suspend(tenant.name, request.job_id)))

    async def RetryJob(self, request: jobs_pb2.RetryJobRequest, context: Context) -> jobs_pb2.RetryJobResponse:
        """Start a job that is over again."""
        tenant = tenant_of(context, self._tenancy)
        with joined(self._tracing, "RetryJob", context.invocation_metadata()) as leads_to:
            _check_key(request.idempotency_key)
            ended = await self._service.find_job(tenant.name, request.job_id)
            await check_project(self._projects, tenant.name, ended.spec)  # it may be gone by now
            again = self._deadlines.checked(tenant, ended.spec) if request.from_scratch else nullcontext()
            async with again:
                job = await self._service.retry(
                    tenant, request.job_id, from_scratch=request.from_scratch, idempotency_key=request.idempotency_key
                )
            leads_to(job.id)
        return jobs_pb2.RetryJobResponse(job=job_to_proto(job))

    async def SetPriority(self, request: jobs_pb2.SetPriorityRequest, context: Context) -> jobs_pb2.SetPriorityResponse:
        """Give a job another priority among its tenant's."""
        tenant = tenant_of(context, self._tenancy)
        job = await self._service.set_priority(tenant.name, request.job_id, request.priority)
        return jobs_pb2.SetPriorityResponse(job=job_to_proto(job))

    async def WatchJobs(
        self, request: jobs_pb2.WatchJobsRequest, context: Context
    ) -> AsyncIterator[jobs_pb2.WatchJobsResponse]:
        """Stream events after a cursor."""
        tenant = tenant_of(context, self._tenancy)
        job_id = request.job_id or None
        if job_id is not None:
            job_id = (await self._service.find_job(tenant.name, job_id)).id
        cursor = min(request.after_sequence, MAX_SEQUENCE)
        while True:
            newest = self._journal.sequence
            # Asked before the events are read: once a job is final, all there is to tell is stored.
            over = job_id is not None and (await self._service.find_job(tenant.name, job_id)).state.is_final
            events = await self._store.events_after(cursor, job_id=job_id, tenant=tenant.name, limit=EVENTS_AT_A_TIME)
            for event in events:
                yield jobs_pb2.WatchJobsResponse(event=to_proto(event, jobs_pb2.JobEvent))
                cursor = event.sequence
                if job_id is not None and isinstance(event.change, StateChanged):
                    over = event.change.state.is_final  # unless it was resumed afterwards
            if len(events) == EVENTS_AT_A_TIME:
                continue
            if over or request.only_past:
                return
            await self._journal.wait_grown(newest)

    async def StreamLogs(
        self, request: jobs_pb2.StreamLogsRequest, context: Context
    ) -> AsyncIterator[jobs_pb2.StreamLogsResponse]:
        """Stream the output of the job's newest run."""
        tenant = tenant_of(context, self._tenancy)
        run_id, offset = "", request.offset_bytes
        while True:
            job = await self._service.find_job(tenant.name, request.job_id)
            if run_id and job.run_id != run_id:  # it was started again; that run's output is a new one
                offset = 0
            run_id = job.run_id
            begin, data = self._logs.read(run_id, offset) if run_id else (offset, b"")
            if data:
                yield jobs_pb2.StreamLogsResponse(offset_bytes=begin, data=data)
                offset = begin + len(data)
            elif not request.follow or job.state.is_final:
                return
            else:
                await self._logs.wait_grown(run_id, offset, LOG_POLL_SECONDS)

    async def ExplainJob(self, request: jobs_pb2.ExplainJobRequest, context: Context) -> jobs_pb2.ExplainJobResponse:
        """Say why a job has its share."""
        tenant = tenant_of(context, self._tenancy)
        job = self._service.explained(await self._service.find_job(tenant.name, request.job_id))
        decisions = await self._store.decisions_of(job.id, limit=DECISIONS_SHOWN)
        return jobs_pb2.ExplainJobResponse(
            job=job_to_proto(job), decisions=[to_proto(decision, jobs_pb2.Decision) for decision in decisions]
        )

    async def ExplainEndpoint(
        self, request: jobs_pb2.ExplainEndpointRequest, context: Context
    ) -> jobs_pb2.ExplainEndpointResponse:
        """Say why an endpoint has its share."""
        tenant = tenant_of(context, self._tenancy)
        endpoint = self._service.endpoints.find(tenant.name, request.endpoint)
        decisions = await self._store.decisions_of(subject_of_endpoint(endpoint.name), limit=DECISIONS_SHOWN)
        nodes = {node.id: node for node in self._service.nodes()}
        return jobs_pb2.ExplainEndpointResponse(
            endpoint=endpoint_told(self._service, endpoint, nodes),
            decisions=[to_proto(decision, jobs_pb2.Decision) for decision in decisions],
        )

    async def ListNodes(self, request: jobs_pb2.ListNodesRequest, context: Context) -> jobs_pb2.ListNodesResponse:
        """List the nodes."""
        return jobs_pb2.ListNodesResponse(
            nodes=[
                node_to_proto(node, self._service.jobs_on(node.id), self._service.accelerators_of(node.id))
                for node in self._service.nodes()
            ]
        )

    async def ListEndpoints(
        self, request: jobs_pb2.ListEndpointsRequest, context: Context
    ) -> jobs_pb2.ListEndpointsResponse:
        """List the tenant's endpoints."""
        tenant = tenant_of(context, self._tenancy)
        nodes = {node.id: node for node in self._service.nodes()}
        found = self._service.endpoints.of(tenant.name)
        return jobs_pb2.ListEndpointsResponse(endpoints=[endpoint_told(self._service, each, nodes) for each in found])

    async def DeleteEndpoint(
        self, request: jobs_pb2.DeleteEndpointRequest, context: Context
    ) -> jobs_pb2.DeleteEndpointResponse:
        """Forget an endpoint."""
        tenant = tenant_of(context, self._tenancy)
        await self._service.endpoints.delete(tenant.name, request.endpoint)
        return jobs_pb2.DeleteEndpointResponse()

    async def PromoteVersion(
        self, request: jobs_pb2.PromoteVersionRequest, context: Context
    ) -> jobs_pb2.PromoteVersionResponse:
        """Let a version of an endpoint answer."""
        endpoint = await self._change_versions(
            request.endpoint, VersionChosen(request.version or None, pin=request.pin), context
        )
        return jobs_pb2.PromoteVersionResponse(endpoint=endpoint)

    async def RollBackVersion(
        self, request: jobs_pb2.RollBackVersionRequest, context: Context
    ) -> jobs_pb2.RollBackVersionResponse:
        """Let an earlier version of an endpoint answer again."""
        change = VersionChosen(request.version or None, back=True, instead_of=request.instead_of)
        endpoint = await self._change_versions(request.endpoint, change, context)
        return jobs_pb2.RollBackVersionResponse(endpoint=endpoint)

    async def _change_versions(self, name: str, change: VersionChosen, context: Context) -> jobs_pb2.Endpoint:
        endpoint = await self._service.endpoints.change_versions(tenant_of(context, self._tenancy).name, name, change)
        return endpoint_told(self._service, endpoint, {node.id: node for node in self._service.nodes()})


def _check_key(key: str) -> None:
    if len(key) > MAX_KEY_CHARACTERS:
        raise wrong_field("idempotency_key", f"is longer than {MAX_KEY_CHARACTERS} characters; shorten it")
