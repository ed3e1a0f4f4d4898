"""The part of the client about what a tenant may do to a job that is there."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod

from tiercel.broker.client.connection import Connection
from tiercel.core.validation_over_time import validate_priority
from tiercel.core.views import JobInfo
from tiercel.core.wire import from_proto
from tiercel.v1 import jobs_pb2


class Acting(ABC):
    """What a client can do to a job."""

    @property
    @abstractmethod
    def _connection(self) -> Connection:
        """To the broker."""

    async def cancel_job(self, job_id: str) -> JobInfo:
        """Stop a job; versions that it delivered keep serving. Cancelling a finished job changes nothing."""
        request = jobs_pb2.CancelJobRequest(job_id=job_id)
        response = await self._connection.call(self._connection.stub.CancelJob, request)
        return from_proto(JobInfo, response.job)

    async def suspend_job(self, job_id: str) -> JobInfo:
        """Have a job save a checkpoint, free all that it holds and wait until it is resumed; its endpoint goes on.

        Raises:
            NotFoundError: The tenant has no such job.
            InvalidSpecError: It is over.
        """
        request = jobs_pb2.SuspendJobRequest(job_id=job_id)
        response = await self._connection.call(self._connection.stub.SuspendJob, request)
        return from_proto(JobInfo, response.job)

    async def resume_job(self, job_id: str, max_epochs: int | None = None) -> JobInfo:
        """Let a job that is suspended or ended without all of its tiers go on from its last checkpoint.

        Args:
            job_id: The job.
            max_epochs: Epochs that it may train, those of earlier runs counted; None for as many as before.

        Raises:
            NotFoundError: The tenant has no such job.
            InvalidSpecError: Every tier of it is delivered, no node could run it any more, or it cannot train so long.
            QuotaExceededError: The tenant has as many active jobs as it may.
            EndpointBusyError: Another active job feeds its endpoint.
        """
        if max_epochs is not None:
            from tiercel.core.validation import validate_max_epochs  # a command that lists does without

            validate_max_epochs(max_epochs)
        request = jobs_pb2.ResumeJobRequest(job_id=job_id, max_epochs=max_epochs or 0)
        response = await self._connection.call(self._connection.stub.ResumeJob, request)
        return from_proto(JobInfo, response.job)

    async def retry_job(self, job_id: str, *, from_scratch: bool = False, idempotency_key: str = "") -> JobInfo:
        """Start a job that is over again: from its last checkpoint, under its id; or from scratch, as a new job.

        Args:
            job_id: The job.
            from_scratch: Train from the beginning. What the first job reported and delivered stays its own: the job
                that is returned is another one, whose label ``tiercel/repeats`` names the first.
            idempotency_key: As of :meth:`.Client.submit`, for the new job.

        Raises:
            NotFoundError: The tenant has no such job.
            InvalidSpecError: It is not over, every tier of it is delivered, or no node could run it any more.
            QuotaExceededError: The tenant has as many active jobs as it may.
            EndpointBusyError: Another active job feeds its endpoint.
        """
        request = jobs_pb2.RetryJobRequest(
            job_id=job_id, from_scratch=from_scratch, idempotency_key=idempotency_key or uuid.uuid4().hex
        )
        response = await self._connection.call(self._connection.stub.RetryJob, request)
        return from_proto(JobInfo, response.job)

    async def set_priority(self, job_id: str, priority: int) -> JobInfo:
        """Give a job that waits or runs another priority among its tenant's, -100 to 100.

        Raises:
            NotFoundError: The tenant has no such job.
            InvalidSpecError: That is no priority, or the job is over.
        """
        validate_priority(priority)
        request = jobs_pb2.SetPriorityRequest(job_id=job_id, priority=priority)
        response = await self._connection.call(self._connection.stub.SetPriority, request)
        return from_proto(JobInfo, response.job)
