"""The asynchronous client."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tiercel.broker.client.acting import Acting
from tiercel.broker.client.asking import Asking
from tiercel.broker.client.connection import Connection
from tiercel.broker.client.deploying import Deploying
from tiercel.broker.client.given_token import given_token
from tiercel.broker.client.handle import JobHandle
from tiercel.broker.client.keeping import Keeping
from tiercel.broker.client.keys import Keys
from tiercel.broker.client.listing import Lists
from tiercel.broker.client.models import Models
from tiercel.broker.client.options import ClientOptions
from tiercel.broker.client.secrets import Secrets
from tiercel.broker.client.state_dir import default_state_dir, read_broker, read_token
from tiercel.broker.conversion import (
    endpoint_explanation_from_proto,
    event_from_proto,
    spec_to_proto,
)
from tiercel.core.endpoint_views import EndpointExplanation
from tiercel.core.errors import InvalidSpecError, TiercelError, UnavailableError
from tiercel.core.jobs import JobSpec
from tiercel.core.trust.trust import Trust
from tiercel.core.views import Explanation, JobEvent
from tiercel.core.wire import from_proto
from tiercel.v1 import jobs_pb2

if TYPE_CHECKING:
    from tiercel.broker.client.inference import InferenceClient
    from tiercel.broker.client.projects.packing import PackedProject
    from tiercel.core.policies import PolicyChoice
    from tiercel.core.predictions import PredictionRecord
    from tiercel.core.what_if import Changes, WhatIf


class Client(Keeping, Acting, Asking, Deploying, Lists):
    """A tenant's connection to a broker; an async context manager.

    Every method raises :class:`~tiercel.core.errors.TiercelError` with a sentence for the user.

    Args:
        address: The broker's, ``host:port``.
        token: The tenant's secret; or the path of a file that has it, which is read anew for each call.
        options: Deadlines and retries.
        trust: How a broker on another machine is known; what ``TIERCEL_BROKER_PIN`` or ``TIERCEL_BROKER_CA`` say when
            left out.
    """

    def __init__(
        self, address: str, *, token: str | Path, options: ClientOptions | None = None, trust: Trust | None = None
    ) -> None:
        self.address = address
        self._trust = Trust.from_environment(os.environ) if trust is None else trust
        self._token = token
        self._options = options or ClientOptions()
        self._open: Connection | None = None
        self._inference: InferenceClient | None = None

    @classmethod
    def from_state_dir(
        cls, state_dir: str | Path | None = None, tenant: str = "default", *, options: ClientOptions | None = None
    ) -> Self:
        """A client of the broker that ``tiercel up`` runs on this machine.

        Args:
            state_dir: Its ``--state-dir``; left out, the one that it has by default.
            tenant: Whose token to use; the environment's ``TIERCEL_TOKEN`` or ``TIERCEL_TOKEN_FILE`` comes first.
            options: Deadlines and retries.

        Raises:
            UnavailableError: No broker was started there.
            NotAuthenticatedError: There is no such tenant.
        """
        folder = default_state_dir() if state_dir is None else Path(state_dir).expanduser()
        address, trust = read_broker(folder)
        token = given_token(os.environ) or read_token(folder, tenant)
        return cls(address, token=token, options=options, trust=trust)

    async def __aenter__(self) -> Self:
        """Get ready; connects with the first call."""
        self._open = await Connection.open(self.address, self._token, self._options, self._trust)
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End the connection."""
        if self._inference is not None:
            await self._inference.close()
            self._inference = None
        if self._open is not None:
            await self._open.close()
            self._open = None

    @property
    def _connection(self) -> Connection:
        if self._open is None:
            raise TiercelError("The client is not open; use it in 'async with Client(...) as client:'.")
        return self._open

    @property
    def secrets(self) -> Secrets:
        """Keeps values that jobs find in their environment and that nobody is told."""
        return Secrets(self._connection)

    @property
    def keys(self) -> Keys:
        """Says who may ask endpoints, and makes keys for them."""
        return Keys(self._connection)

    @property
    def models(self) -> Models:
        """The versions of endpoints: what they are, their files, and which of them answers."""
        return Models(self._connection)

    async def submit(
        self,
        spec: JobSpec | str | Path,
        *,
        idempotency_key: str = "",
        packed: PackedProject | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> JobHandle:
        """Create a job, and send the folder that it runs from as far as the broker lacks it.

        Args:
            spec: What to train; or where that is written: a file, or a folder with a ``tiercel.yaml``.
            idempotency_key: Submitting again with the same key returns the same job; a fresh one when left out, so
                that a retry after a lost answer creates nothing twice.
            packed: The folder that it runs from, where :meth:`pack` has read it already.
            progress: Called with the bytes of the project that were sent, and those that are to be sent.

        Raises:
            InvalidSpecError: A field is wrong; names it.
            EndpointBusyError: Somebody else feeds the endpoint.
            QuotaExceededError: The tenant has as many active jobs as it may.
        """
        # What only a job needs that is sent is imported here: reading specs and folders takes longer than a call.
        from tiercel.broker.client.projects.sending import send_project
        from tiercel.broker.client.spec_file import load_spec

        if not isinstance(spec, JobSpec):
            spec = await asyncio.to_thread(load_spec, spec)
        packed = packed or await self.pack(spec)
        if packed is not None:
            spec = replace(spec, project=packed.project)
        request = jobs_pb2.SubmitJobRequest(
            spec=spec_to_proto(spec), idempotency_key=idempotency_key or uuid.uuid4().hex
        )
        # First as if all of the project were there, so that nothing is sent of a job that is refused. Then what lacks,
        # folder by folder; and once, in case that the root was there and something that it leads to was not, anything.
        for whole in (False, True):
            try:
                return await self._create(request)
            except InvalidSpecError as error:
                if packed is None or error.field != "project":
                    raise
            await send_project(self._connection, packed, whole=whole, progress=progress)
        return await self._create(request)

    async def _create(self, request: jobs_pb2.SubmitJobRequest) -> JobHandle:
        return self.job((await self._connection.call(self._connection.stub.SubmitJob, request)).job.id)

    async def pack(self, spec: JobSpec) -> PackedProject | None:
        """Read the folder that a job is to run from, and send nothing; None if it has none on this machine.

        Args:
            spec: The job's.

        Raises:
            InvalidSpecError: A field is wrong, or the folder cannot be sent; says what to do.
        """
        from tiercel.broker.client.projects.packing import pack
        from tiercel.broker.client.projects.sending import project_limit
        from tiercel.core.commands import check_command
        from tiercel.core.validation import validate_spec  # a command that lists does without

        validate_spec(spec)
        if spec.project is None or not spec.project.folder:
            return None
        limit_bytes = await project_limit(self._connection)
        packed = await asyncio.to_thread(pack, spec.project, limit_bytes)
        check_command(spec.command, packed.entries())
        return packed

    def job(self, job_id: str) -> JobHandle:
        """A handle on a job, without asking the broker about it."""
        return JobHandle(self, job_id)

    async def explain_job(self, job_id: str) -> Explanation:
        """Why a job has its share, and what was decided before."""
        request = jobs_pb2.ExplainJobRequest(job_id=job_id)
        response = await self._connection.call(self._connection.stub.ExplainJob, request)
        return from_proto(Explanation, response)

    async def explain_endpoint(self, name: str) -> EndpointExplanation:
        """Why an endpoint has its share, and what was decided before.

        Raises:
            NotFoundError: The tenant has no such endpoint.
        """
        request = jobs_pb2.ExplainEndpointRequest(endpoint=name)
        response = await self._connection.call(self._connection.stub.ExplainEndpoint, request)
        return endpoint_explanation_from_proto(response)

    async def policy(self) -> tuple[PolicyChoice, tuple[str, ...]]:
        """The scheduling policy that decides, and the names of all that there are."""
        from tiercel.broker.client.policy import get_policy

        return await get_policy(self._connection)

    async def what_if(self, changes: Changes) -> WhatIf:
        """When tiers would be reached, and how endpoints would answer, if something were different.

        Raises:
            NotFoundError: The tenant has no such job or endpoint, or there is no such node.
            InvalidSpecError: There is no such policy, or a number is out of bounds.
        """
        from tiercel.broker.client.what_if import what_if

        return await what_if(self._connection, changes)

    async def predictions(self, job_id: str = "", limit: int = 0) -> PredictionRecord:
        """When tiers were predicted to be reached, when they were, and how far off that is by policy.

        Args:
            job_id: Only those about this job.
            limit: At most so many predictions, up to 1000; 0 for 100.
        """
        from tiercel.broker.client.what_if import predictions

        return await predictions(self._connection, job_id, limit)

    async def delete_endpoint(self, name: str) -> None:
        """Forget an endpoint and what was delivered to it; its name is free then.

        Raises:
            NotFoundError: The tenant has no such endpoint.
            EndpointBusyError: A job feeds it.
        """
        request = jobs_pb2.DeleteEndpointRequest(endpoint=name)
        await self._connection.call(self._connection.stub.DeleteEndpoint, request)

    async def events(self, *, job_id: str = "", after: int = 0, follow: bool = True) -> AsyncGenerator[JobEvent]:
        """What happens to one job until it has finished, or to all the tenant's jobs without end.

        Fails at once if the broker cannot be reached when it begins; later breaks of the connection are mended, and
        the stream goes on behind the last event.

        Args:
            job_id: The job; empty for all.
            after: Only events with a larger ``sequence``.
            follow: Wait for what will happen; otherwise the stream ends after what has happened so far.
        """
        await (self.get_job(job_id) if job_id else self.list_nodes())
        last = after

        async def attempt() -> AsyncGenerator[jobs_pb2.JobEvent]:
            nonlocal last
            request = jobs_pb2.WatchJobsRequest(job_id=job_id, after_sequence=last, only_past=not follow)
            async with aclosing(self._connection.stream(self._connection.stub.WatchJobs, request)) as responses:
                async for response in responses:
                    if response.event.sequence > last:
                        last = response.event.sequence
                        yield response.event
            if follow:
                await self._check_finished(job_id)

        async with aclosing(self._connection.resumed(attempt)) as events:
            async for wire in events:
                if (event := event_from_proto(wire)) is not None:
                    yield event

    async def logs(self, job_id: str, *, follow: bool = False, offset: int = 0) -> AsyncGenerator[bytes]:
        """The output of a job's training script; a line says how much is left out where it is not kept any more.

        Args:
            job_id: The job.
            follow: Stay until the job has finished.
            offset: Byte to begin with.
        """
        await self.get_job(job_id)
        position = offset

        async def attempt() -> AsyncGenerator[bytes]:
            nonlocal position
            request = jobs_pb2.StreamLogsRequest(job_id=job_id, offset_bytes=position, follow=follow)
            async with aclosing(self._connection.stream(self._connection.stub.StreamLogs, request)) as responses:
                async for response in responses:
                    if (left_out := response.offset_bytes - position) > 0:
                        yield b"\n[tiercel: %d bytes of output are not kept]\n" % left_out
                    position = response.offset_bytes + len(response.data)
                    yield response.data
            if follow:
                await self._check_finished(job_id)

        async with aclosing(self._connection.resumed(attempt)) as chunks:
            async for chunk in chunks:
                yield chunk

    def _asking(self) -> InferenceClient:
        if self._inference is None:
            # Most programs submit and watch only: aiohttp is not imported for them.
            from tiercel.broker.client.inference import InferenceClient
            from tiercel.broker.client.places import BrokerPlaces

            places = BrokerPlaces(self._connection, self.list_endpoints, is_elsewhere=bool(self._trust))
            self._inference = InferenceClient(self._options, places)
        return self._inference

    async def _check_finished(self, job_id: str) -> None:
        # The broker ends a stream when the job has finished, and also when it stops itself.
        if not job_id or not (await self.get_job(job_id)).state.is_final:
            raise UnavailableError(f"The broker at {self.address} ended the stream.")
