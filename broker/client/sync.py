"""The clients for programs without an event loop: the same names, arguments and errors, blocking."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

from tiercel.broker.client.blocking import Blocking, BlockingClient, blocking, blocking_part, iterating
from tiercel.broker.client.client import Client
from tiercel.broker.client.endpoint_client import EndpointClient
from tiercel.broker.client.handle import JobHandle
from tiercel.broker.client.keys import Keys
from tiercel.broker.client.models import Models
from tiercel.broker.client.options import ClientOptions
from tiercel.broker.client.secrets import Secrets
from tiercel.core.jobs import JobSpec
from tiercel.core.trust.trust import Trust


class SyncModels(Blocking[Models]):
    """A blocking :class:`~tiercel.broker.client.models.Models`; ``progress`` is called on another thread."""

    list = blocking(Models.list)
    show = blocking(Models.show)
    compare = blocking(Models.compare)
    pull = blocking(Models.pull)
    promote = blocking(Models.promote)
    rollback = blocking(Models.rollback)
    pin = blocking(Models.pin)
    remove = blocking(Models.remove)
    keep = blocking(Models.keep)


class SyncJobHandle(Blocking[JobHandle]):
    """A blocking :class:`~tiercel.broker.client.handle.JobHandle`; ``progress`` is called on another thread."""

    @property
    def id(self) -> str:
        """The job's."""
        return self._find().id

    def __repr__(self) -> str:
        return f"SyncJobHandle({self.id!r})"

    refresh = blocking(JobHandle.refresh)
    wait = blocking(JobHandle.wait)
    wait_for_tier = blocking(JobHandle.wait_for_tier)
    events = iterating(JobHandle.events)
    curve = blocking(JobHandle.curve)
    to_frame = blocking(JobHandle.to_frame)
    logs = iterating(JobHandle.logs)
    files = blocking(JobHandle.files)
    download = blocking(JobHandle.download)
    cancel = blocking(JobHandle.cancel)
    suspend = blocking(JobHandle.suspend)
    resume = blocking(JobHandle.resume)
    retry = blocking(JobHandle.retry)
    set_priority = blocking(JobHandle.set_priority)
    explain = blocking(JobHandle.explain)


def _keys(client: Client) -> Keys:
    return client.keys


def _secrets(client: Client) -> Secrets:
    return client.secrets


class SyncClient(BlockingClient[Client]):
    """A blocking :class:`~tiercel.broker.client.client.Client`; a context manager. Not for use within an event loop.

    Args:
        address: The broker's, ``host:port``.
        token: The tenant's secret, or the path of a file that has it.
        options: Deadlines and retries.
        trust: How a broker on another machine is known, see :class:`Client`.
    """

    def __init__(
        self, address: str, *, token: str | Path, options: ClientOptions | None = None, trust: Trust | None = None
    ) -> None:
        super().__init__(Client(address, token=token, options=options, trust=trust))

    @classmethod
    def from_state_dir(
        cls, state_dir: str | Path | None = None, tenant: str = "default", *, options: ClientOptions | None = None
    ) -> Self:
        """See :meth:`Client.from_state_dir`."""
        made = cls.__new__(cls)
        BlockingClient.__init__(made, Client.from_state_dir(state_dir, tenant, options=options))
        return made

    def submit(
        self,
        spec: JobSpec | str | Path,
        *,
        idempotency_key: str = "",
        progress: Callable[[int, int], None] | None = None,
    ) -> SyncJobHandle:
        """See :meth:`Client.submit`; ``progress`` is called on another thread."""
        return self.job(self._submit(spec, idempotency_key=idempotency_key, progress=progress).id)

    def job(self, job_id: str) -> SyncJobHandle:
        """See :meth:`Client.job`."""
        handle = self._find().job(job_id)
        return SyncJobHandle(lambda: handle, self._loop)

    @property
    def models(self) -> SyncModels:
        """See :attr:`Client.models`."""
        return SyncModels(lambda: self._find().models, self._loop)

    _submit = blocking(Client.submit)
    get_job = blocking(Client.get_job)
    list_jobs = blocking(Client.list_jobs)
    cancel_job = blocking(Client.cancel_job)
    suspend_job = blocking(Client.suspend_job)
    resume_job = blocking(Client.resume_job)
    retry_job = blocking(Client.retry_job)
    set_priority = blocking(Client.set_priority)
    explain_job = blocking(Client.explain_job)
    events = iterating(Client.events)
    logs = iterating(Client.logs)
    frame = blocking(Client.frame)
    files = blocking(Client.files)
    download = blocking(Client.download)
    disk_use = blocking(Client.disk_use)
    collect_garbage = iterating(Client.collect_garbage)
    list_nodes = blocking(Client.list_nodes)
    list_endpoints = blocking(Client.list_endpoints)
    explain_endpoint = blocking(Client.explain_endpoint)
    deploy = blocking(Client.deploy)
    delete_endpoint = blocking(Client.delete_endpoint)
    policy = blocking(Client.policy)
    what_if = blocking(Client.what_if)
    predictions = blocking(Client.predictions)
    infer = blocking(Client.infer)
    generate = blocking(Client.generate)
    generate_stream = iterating(Client.generate_stream)
    explain_request = blocking(Client.explain_request)
    feedback = blocking(Client.feedback)
    create_key = blocking_part(_keys, Keys.create)
    list_keys = blocking_part(_keys, Keys.list)
    revoke_key = blocking_part(_keys, Keys.revoke)
    set_access = blocking_part(_keys, Keys.set_access)
    set_secret = blocking_part(_secrets, Secrets.set)
    list_secrets = blocking_part(_secrets, Secrets.list)
    remove_secret = blocking_part(_secrets, Secrets.remove)


class SyncEndpointClient(BlockingClient[EndpointClient]):
    """A blocking :class:`~tiercel.broker.client.endpoint_client.EndpointClient`, with the same arguments and errors."""

    def __init__(
        self, address: str, *, key: str | None = None, options: ClientOptions | None = None, trust: Trust | None = None
    ) -> None:
        super().__init__(EndpointClient(address, key=key, options=options, trust=trust))

    infer = blocking(EndpointClient.infer)
    generate = blocking(EndpointClient.generate)
    generate_stream = iterating(EndpointClient.generate_stream)
    explain_request = blocking(EndpointClient.explain_request)
    feedback = blocking(EndpointClient.feedback)
