"""The client for programs without an event loop: the same names, blocking."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tiercel.broker.client.client import Client
from tiercel.broker.client.curves import MOST_REPORTS, Curve
from tiercel.broker.client.downloads import Progress
from tiercel.broker.client.keys import Keys
from tiercel.broker.client.loop_thread import LoopThread
from tiercel.broker.client.options import ClientOptions
from tiercel.broker.client.secrets import Secrets
from tiercel.broker.client.sync_models import SyncModels
from tiercel.core.disk_use import DiskUse, Removal
from tiercel.core.endpoint_access import EndpointAccess, Key
from tiercel.core.errors import TiercelError
from tiercel.core.file_views import FileInfo
from tiercel.core.jobs import JobSpec, TierStatus
from tiercel.core.secrets import Secret
from tiercel.core.trust.trust import Trust
from tiercel.core.views import (
    EndpointExplanation,
    EndpointInfo,
    Explanation,
    JobEvent,
    JobInfo,
    Json,
    NodeInfo,
)

if TYPE_CHECKING:
    from pandas import DataFrame

    from tiercel.broker.client.inference import ArrayLike, InferenceResult
    from tiercel.broker.client.models import Models
    from tiercel.core.policies import PolicyChoice
    from tiercel.core.what_if import Changes, WhatIf

T = TypeVar("T")


class SyncClient:
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
        self._client = Client(address, token=token, options=options, trust=trust)
        self._loop: LoopThread | None = None

    @classmethod
    def from_state_dir(
        cls, state_dir: str | Path | None = None, tenant: str = "default", *, options: ClientOptions | None = None
    ) -> Self:
        """See :meth:`Client.from_state_dir`."""
        facade = cls("", token="")
        facade._client = Client.from_state_dir(state_dir, tenant, options=options)
        return facade

    def __enter__(self) -> Self:
        """Get ready; connects with the first call."""
        self._loop = LoopThread()
        self._run(self._client.__aenter__())
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End the connection."""
        if self._loop is not None:
            self._run(self._client.__aexit__(None, None, None))
            self._loop.stop()
            self._loop = None

    def create_key(
        self, endpoint: str, *, name: str = "", per_second: float = 0.0, seconds: float = 0.0
    ) -> tuple[Key, str]:
        """See :meth:`Keys.create`."""
        return self._run(
            self._keys(lambda keys: keys.create(endpoint, name=name, per_second=per_second, seconds=seconds))
        )

    def list_keys(self, endpoint: str = "") -> tuple[Key, ...]:
        """See :meth:`Keys.list`."""
        return self._run(self._keys(lambda keys: keys.list(endpoint)))

    def revoke_key(self, key_id: str) -> None:
        """See :meth:`Keys.revoke`."""
        self._run(self._keys(lambda keys: keys.revoke(key_id)))

    def set_access(self, endpoint: str, access: EndpointAccess) -> None:
        """See :meth:`Keys.set_access`."""
        self._run(self._keys(lambda keys: keys.set_access(endpoint, access)))

    async def _keys(self, action: Callable[[Keys], Awaitable[T]]) -> T:
        return await action(self._client.keys)

    def set_secret(self, name: str, value: str) -> Secret:
        """See :meth:`Secrets.set`."""
        return self._run(self._secrets(lambda secrets: secrets.set(name, value)))

    def list_secrets(self) -> tuple[Secret, ...]:
        """See :meth:`Secrets.list`."""
        return self._run(self._secrets(lambda secrets: secrets.list()))

    def remove_secret(self, name: str) -> None:
        """See :meth:`Secrets.remove`."""
        self._run(self._secrets(lambda secrets: secrets.remove(name)))

    async def _secrets(self, action: Callable[[Secrets], Awaitable[T]]) -> T:
        return await action(self._client.secrets)

    @property
    def models(self) -> SyncModels:
        """See :attr:`Client.models`."""

        async def with_models(action: Callable[[Models], Awaitable[T]]) -> T:
            return await action(self._client.models)

        return SyncModels(lambda action: self._run(with_models(action)))

    def submit(
        self,
        spec: JobSpec | str | Path,
        *,
        idempotency_key: str = "",
        progress: Callable[[int, int], None] | None = None,
    ) -> SyncJobHandle:
        """See :meth:`Client.submit`."""
        submitted = self._client.submit(spec, idempotency_key=idempotency_key, progress=progress)
        return self.job(self._run(submitted).id)

    def job(self, job_id: str) -> SyncJobHandle:
        """See :meth:`Client.job`."""
        return SyncJobHandle(self, self._client, job_id)

    def get_job(self, job_id: str) -> JobInfo:
        """See :meth:`Client.get_job`."""
        return self._run(self._client.get_job(job_id))

    def list_jobs(self, *, active_only: bool = False, limit: int | None = None) -> tuple[JobInfo, ...]:
        """See :meth:`Client.list_jobs`."""
        return self._run(self._client.list_jobs(active_only=active_only, limit=limit))

    def cancel_job(self, job_id: str) -> JobInfo:
        """See :meth:`Client.cancel_job`."""
        return self._run(self._client.cancel_job(job_id))

    def suspend_job(self, job_id: str) -> JobInfo:
        """See :meth:`Client.suspend_job`."""
        return self._run(self._client.suspend_job(job_id))

    def resume_job(self, job_id: str, max_epochs: int | None = None) -> JobInfo:
        """See :meth:`Client.resume_job`."""
        return self._run(self._client.resume_job(job_id, max_epochs))

    def retry_job(self, job_id: str, *, from_scratch: bool = False, idempotency_key: str = "") -> JobInfo:
        """See :meth:`Client.retry_job`."""
        return self._run(self._client.retry_job(job_id, from_scratch=from_scratch, idempotency_key=idempotency_key))

    def set_priority(self, job_id: str, priority: int) -> JobInfo:
        """See :meth:`Client.set_priority`."""
        return self._run(self._client.set_priority(job_id, priority))

    def explain_job(self, job_id: str) -> Explanation:
        """See :meth:`Client.explain_job`."""
        return self._run(self._client.explain_job(job_id))

    def explain_endpoint(self, name: str) -> EndpointExplanation:
        """See :meth:`Client.explain_endpoint`."""
        return self._run(self._client.explain_endpoint(name))

    def policy(self) -> tuple[PolicyChoice, tuple[str, ...]]:
        """See :meth:`Client.policy`."""
        return self._run(self._client.policy())

    def what_if(self, changes: Changes) -> WhatIf:
        """See :meth:`Client.what_if`."""
        return self._run(self._client.what_if(changes))

    def list_nodes(self) -> tuple[NodeInfo, ...]:
        """See :meth:`Client.list_nodes`."""
        return self._run(self._client.list_nodes())

    def list_endpoints(self) -> tuple[EndpointInfo, ...]:
        """See :meth:`Client.list_endpoints`."""
        return self._run(self._client.list_endpoints())

    def delete_endpoint(self, name: str) -> None:
        """See :meth:`Client.delete_endpoint`."""
        self._run(self._client.delete_endpoint(name))

    def frame(self, jobs: Sequence[str] | None = None) -> DataFrame:
        """See :meth:`Client.frame`."""
        return self._run(self._client.frame(jobs))

    def events(self, *, job_id: str = "", after: int = 0, follow: bool = True) -> Generator[JobEvent]:
        """See :meth:`Client.events`."""
        return self._iterate(self._client.events(job_id=job_id, after=after, follow=follow))

    def logs(self, job_id: str, *, follow: bool = False, offset: int = 0) -> Generator[bytes]:
        """See :meth:`Client.logs`."""
        return self._iterate(self._client.logs(job_id, follow=follow, offset=offset))

    def files(self, job_id: str) -> tuple[FileInfo, ...]:
        """See :meth:`Client.files`."""
        return self._run(self._client.files(job_id))

    def download(
        self, job_id: str, to: str | Path, pattern: str = "**", *, progress: Progress | None = None
    ) -> tuple[Path, ...]:
        """See :meth:`Client.download`; ``progress`` is called on another thread."""
        return self._run(self._client.download(job_id, to, pattern, progress=progress))

    def disk_use(self) -> DiskUse:
        """See :meth:`Client.disk_use`."""
        return self._run(self._client.disk_use())

    def collect_garbage(self, *, dry_run: bool = False) -> Generator[Removal]:
        """See :meth:`Client.collect_garbage`."""
        return self._iterate(self._client.collect_garbage(dry_run=dry_run))

    def infer(
        self,
        endpoint: str,
        inputs: Mapping[str, ArrayLike],
        minimum_accuracy: float | None = None,
        key: str | None = None,
        *,
        request_id: str = "",
    ) -> InferenceResult:
        """See :meth:`Client.infer`."""
        return self._run(self._client.infer(endpoint, inputs, minimum_accuracy, key, request_id=request_id))

    def explain_request(self, endpoint: str, request_id: str, key: str | None = None) -> Json:
        """See :meth:`Client.explain_request`."""
        return self._run(self._client.explain_request(endpoint, request_id, key))

    def feedback(self, endpoint: str, labels: Mapping[str, Any], key: str | None = None) -> Json:
        """See :meth:`Client.feedback`."""
        return self._run(self._client.feedback(endpoint, labels, key))

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            coroutine.close()
            raise TiercelError("The client is not open; use it in 'with SyncClient(...) as client:'.")
        return self._loop.run(coroutine)

    def _iterate(self, items: AsyncGenerator[T]) -> Generator[T]:
        async def next_item() -> T | None:
            return await anext(items, None)

        try:
            while (item := self._run(next_item())) is not None:
                yield item
        finally:
            self._run(items.aclose())


class SyncJobHandle:
    """A blocking :class:`~tiercel.broker.client.handle.JobHandle`."""

    def __init__(self, facade: SyncClient, client: Client, job_id: str) -> None:
        self._facade = facade
        self._handle = client.job(job_id)
        self.id = job_id

    def __repr__(self) -> str:
        return f"SyncJobHandle({self.id!r})"

    def refresh(self) -> JobInfo:
        """See :meth:`JobHandle.refresh`."""
        return self._facade.get_job(self.id)

    def wait(self, timeout: float | None = None) -> JobInfo:
        """See :meth:`JobHandle.wait`."""
        return self._facade._run(self._handle.wait(timeout))  # noqa: SLF001 - the two are one facade

    def wait_for_tier(self, number: int, timeout: float | None = None) -> TierStatus:
        """See :meth:`JobHandle.wait_for_tier`."""
        return self._facade._run(self._handle.wait_for_tier(number, timeout))  # noqa: SLF001 - the two are one facade

    def events(self, after: int = 0, *, follow: bool = True) -> Generator[JobEvent]:
        """See :meth:`JobHandle.events`."""
        return self._facade.events(job_id=self.id, after=after, follow=follow)

    def curve(self, limit: int = MOST_REPORTS) -> Curve:
        """See :meth:`JobHandle.curve`."""
        return self._facade._run(self._handle.curve(limit))  # noqa: SLF001 - the two are one facade

    def to_frame(self, limit: int = MOST_REPORTS) -> DataFrame:
        """See :meth:`JobHandle.to_frame`."""
        return self._facade._run(self._handle.to_frame(limit))  # noqa: SLF001 - the two are one facade

    def logs(self, *, follow: bool = False, offset: int = 0) -> Generator[bytes]:
        """See :meth:`JobHandle.logs`."""
        return self._facade.logs(self.id, follow=follow, offset=offset)

    def files(self) -> tuple[FileInfo, ...]:
        """See :meth:`JobHandle.files`."""
        return self._facade.files(self.id)

    def download(self, to: str | Path, pattern: str = "**", *, progress: Progress | None = None) -> tuple[Path, ...]:
        """See :meth:`JobHandle.download`."""
        return self._facade.download(self.id, to, pattern, progress=progress)

    def cancel(self) -> JobInfo:
        """See :meth:`JobHandle.cancel`."""
        return self._facade.cancel_job(self.id)

    def suspend(self) -> JobInfo:
        """See :meth:`JobHandle.suspend`."""
        return self._facade.suspend_job(self.id)

    def resume(self, max_epochs: int | None = None) -> JobInfo:
        """See :meth:`JobHandle.resume`."""
        return self._facade.resume_job(self.id, max_epochs)

    def retry(self, *, from_scratch: bool = False) -> JobInfo:
        """See :meth:`JobHandle.retry`."""
        return self._facade.retry_job(self.id, from_scratch=from_scratch)

    def set_priority(self, priority: int) -> JobInfo:
        """See :meth:`JobHandle.set_priority`."""
        return self._facade.set_priority(self.id, priority)

    def explain(self) -> Explanation:
        """See :meth:`JobHandle.explain`."""
        return self._facade.explain_job(self.id)
