"""Asks endpoints at one address, for programs without an event loop."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tiercel.broker.client.endpoint_client import EndpointClient
from tiercel.broker.client.loop_thread import LoopThread
from tiercel.core.errors import TiercelError

if TYPE_CHECKING:
    from tiercel.broker.client.inference import ArrayLike, InferenceResult
    from tiercel.broker.client.options import ClientOptions
    from tiercel.core.trust.trust import Trust
    from tiercel.core.views import Json


class SyncEndpointClient:
    """A blocking :class:`~tiercel.broker.client.endpoint_client.EndpointClient`; a context manager.

    Not for use within an event loop. Arguments and errors are the same.
    """

    def __init__(
        self, address: str, *, key: str | None = None, options: ClientOptions | None = None, trust: Trust | None = None
    ) -> None:
        self._client = EndpointClient(address, key=key, options=options, trust=trust)
        self._loop: LoopThread | None = None

    def __enter__(self) -> Self:
        """Get ready; connects with the first request."""
        self._loop = LoopThread()
        self._loop.run(self._client.__aenter__())
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End the connections."""
        if self._loop is not None:
            self._loop.run(self._client.__aexit__(None, None, None))
            self._loop.stop()
            self._loop = None

    def infer(
        self,
        endpoint: str,
        inputs: Mapping[str, ArrayLike],
        minimum_accuracy: float | None = None,
        *,
        request_id: str = "",
    ) -> InferenceResult:
        """See :meth:`EndpointClient.infer`."""
        return self._open().run(self._client.infer(endpoint, inputs, minimum_accuracy, request_id=request_id))

    def explain_request(self, endpoint: str, request_id: str) -> Json:
        """See :meth:`EndpointClient.explain_request`."""
        return self._open().run(self._client.explain_request(endpoint, request_id))

    def feedback(self, endpoint: str, labels: Mapping[str, Any]) -> Json:
        """See :meth:`EndpointClient.feedback`."""
        return self._open().run(self._client.feedback(endpoint, labels))

    def _open(self) -> LoopThread:
        if self._loop is None:
            raise TiercelError("The client is not open; use it in 'with SyncEndpointClient(...) as client:'.")
        return self._loop
