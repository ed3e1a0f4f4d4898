"""Methods of the contract as calls from inside of the process find them: through the same gate as all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from tiercel.core.errors import CODE_KEY, ERRORS, FIELD_KEY, TiercelError
from tiercel.v1 import RETRY_KEY, refusals_pb2

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import NoReturn

    from tiercel.broker.api.gate import TenantsGate

    Handler = grpc.RpcMethodHandler[Any, Any]
    Write = Callable[[Any], Awaitable[None]]
    Metadata = tuple[tuple[str, str | bytes], ...]


class CallRefusedError(grpc.aio.AbortError):
    """A call from inside ended with an error.

    Args:
        code: Of the catalogue.
        message: For people.
        field: Which field of the request is wrong, or empty.
        seconds: After how long it may be let through; None where that is not said.
    """

    def __init__(self, code: str, message: str, field: str = "", seconds: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
        self.seconds = seconds

    @property
    def http_status(self) -> int:
        """As the catalogue has it."""
        return ERRORS.get(self.code, TiercelError).http_status


class Methods:
    """Takes services as a gRPC server does, for it and for calls from inside."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server
        self._handlers: dict[str, Handler] = {}

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Part of a server's interface."""
        self._server.add_generic_rpc_handlers(tuple(handlers))

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        """Part of a server's interface."""
        self._server.add_registered_method_handlers(service, dict(handlers))
        self._handlers |= {f"/{service}/{name}": handler for name, handler in handlers.items()}

    @property
    def services(self) -> tuple[str, ...]:
        """Names of the services, in the order in which they came."""
        return tuple(dict.fromkeys(method.split("/")[1] for method in self._handlers))

    def handler(self, method: str) -> Handler:
        """Of a method, ``/package.Service/Method``."""
        return self._handlers[method]


class Calls:
    """Calls methods inside of the process as if they had come over the wire: the same rights, rates and records."""

    def __init__(self, gate: TenantsGate, methods: Methods) -> None:
        self._gate = gate
        self._methods = methods

    def handler(self, method: str) -> Handler:
        """What answers a method, without a look at who asks, for whoever was let through."""
        return self._methods.handler(method)

    async def call(
        self,
        method: str,
        request: object,
        token: str,
        peer: str,
        *,
        handler: Handler | None = None,
        write: Write | None = None,
    ) -> Any:
        """Call a method; returns its answer, the last one of several.

        Args:
            method: Whose rule holds, ``/package.Service/Method``.
            request: Its message.
            token: Of who calls; empty for none.
            peer: Where the call comes from, as gRPC writes it.
            handler: What answers in the method's place.
            write: Gets each answer as it comes.

        Raises:
            CallRefusedError: It failed; says why.
        """
        metadata: Metadata = (("authorization", f"Bearer {token}"),) if token else ()
        context = _Context(request, metadata, peer, write)
        found = handler or self._methods.handler(method)

        async def continuation(_: grpc.HandlerCallDetails) -> Handler:
            return found

        entered = await self._gate.intercept_service(continuation, _Details(method, metadata))
        assert entered is not None  # noqa: S101 - there is a handler, and the gate puts another one in its place
        assert entered.stream_stream is not None  # noqa: S101 - all that the gate lets through are
        await entered.stream_stream(iter(()), context)  # type: ignore[arg-type, misc] # which of gRPC's is not said
        return context.answer


class _Details(grpc.HandlerCallDetails):
    """What the gate reads of a call."""

    def __init__(self, method: str, metadata: Metadata) -> None:
        self.method = method
        self.invocation_metadata = metadata


class _Context:
    """What methods and the gate use of gRPC's context."""

    def __init__(self, request: object, metadata: Metadata, peer: str, write: Write | None) -> None:
        self.answer: Any = None
        self._request = request
        self._metadata = metadata
        self._peer = peer
        self._write = write

    def invocation_metadata(self) -> Metadata:
        return self._metadata

    def peer(self) -> str:
        return self._peer

    async def read(self) -> object:
        return self._request

    async def write(self, message: object) -> None:
        self.answer = message
        if self._write is not None:
            await self._write(message)

    async def abort(self, _: grpc.StatusCode, details: str = "", trailing: Metadata = ()) -> NoReturn:
        told = dict(trailing)
        code, field = told.get(CODE_KEY, TiercelError.code), told.get(FIELD_KEY, "")
        raise CallRefusedError(str(code), details, str(field), _seconds(told.get(RETRY_KEY)))


def _seconds(told: str | bytes | None) -> float | None:
    """After how long a call may be let through, as :mod:`.errors` says it to standard clients."""
    if not isinstance(told, bytes):
        return None
    info = refusals_pb2.RetryInfo()
    info.ParseFromString(refusals_pb2.RefusalStatus.FromString(told).details[0].value)
    return info.retry_delay.ToMilliseconds() / 1000
