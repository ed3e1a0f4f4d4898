"""The Open Inference Protocol over gRPC, with health and reflection.

Imported by the server's entry only: ``tritonclient.grpc`` registers messages of the same names, and one process cannot
hold both.
"""

from __future__ import annotations

import inspect
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from google.protobuf.message import Message

from tiercel.core.errors import RateExceededError, TiercelError
from tiercel.core.rates import retry_after_seconds
from tiercel.core.traces import Tracing
from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.serving.access.gate import Gate
from tiercel.serving.connections.door import EncryptedDoor
from tiercel.serving.dataplane import DataPlane
from tiercel.serving.descriptions import Descriptions
from tiercel.serving.grpc.generation import GrpcGeneration, is_prompt
from tiercel.serving.grpc.handing import HANDED_ON, STREAMED, TRACE_CONTEXT, GrpcHanding, HandedCall, HandedCalls
from tiercel.serving.grpc.server import health, reflection, wire
from tiercel.serving.grpc.server.calls import Call, Method
from tiercel.serving.grpc.server.health import Health
from tiercel.serving.grpc.server.reflection import Reflection
from tiercel.serving.grpc.server.server import GrpcLimits, Listener
from tiercel.serving.grpc.server.wire import CallError, Status
from tiercel.serving.grpc.stream import StreamedInference
from tiercel.serving.grpc.templates import GrpcRequest, RequestReader, write_answer
from tiercel.serving.http2.streams import Budget, Http2Limits
from tiercel.serving.loading.lifecycle import Lifecycle
from tiercel.serving.loading.uploads import Uploads
from tiercel.serving.operators import Operators
from tiercel.serving.requests import InferResult
from tiercel.serving.settings import Settings
from tiercel.serving.tasks import StartTask

_logger = logging.getLogger(__name__)

# A function from a request, and the call that it is of, to its answer.
Handler = Callable[[Any, Call], Message | Awaitable[Message]]
_STREAMS = 128  # calls at the same time on one connection; clients let others wait
_WINDOW_BYTES = 1024 * 1024  # what a call may send ahead
_FOR_OPERATORS = frozenset({"RepositoryModelLoad", "RepositoryModelUnload"})
SERVICE = "inference.GRPCInferenceService"


class InferenceServicer:
    """Translates calls; all behaviour is the data plane's and the lifecycle's.

    Args:
        plane: Answers inference.
        lifecycle: Brings models up and down.
        start_task: Starts a task that somebody owns, so that a load goes on when its caller leaves.
        descriptions: Tells about models.
        uploads: Loads models, with files or without.
        operators: Who may change what the server does.
        gate: Who may ask which model; None where everybody may.
        handing: Hands on what other nodes answer; None where there are no others.
        tracing: Makes spans of calls for inference, streamed ones aside; None for none.
        generation: Answers requests of streams for tokens; None for nobody.
    """

    def __init__(
        self,
        plane: DataPlane,
        lifecycle: Lifecycle,
        start_task: StartTask,
        descriptions: Descriptions,
        uploads: Uploads,
        operators: Operators,
        gate: Gate | None = None,
        handing: GrpcHanding | None = None,
        tracing: Tracing | None = None,
        generation: GrpcGeneration | None = None,
    ) -> None:
        self._generation = generation
        self._handing = handing
        self._tracing = tracing
        self._gate = gate if gate is not None else Gate(operators)
        self._uploads = uploads
        self._operators = operators
        self._plane = plane
        self._descriptions = descriptions
        self._lifecycle = lifecycle
        self._start_task = start_task
        self._reader = RequestReader()

    def handlers(self) -> Mapping[str, Handler]:
        """What answers each method of the service but inference, by name: functions, or coroutine functions."""
        return {
            "ServerLive": lambda _, __: pb.ServerLiveResponse(live=True),
            "ServerReady": lambda _, __: pb.ServerReadyResponse(ready=self._plane.is_ready()),
            "ServerMetadata": lambda _, __: pb.ServerMetadataResponse(**self._plane.server_metadata()),
            "ModelReady": self._model_ready,
            "ModelMetadata": self._model_metadata,
            "ModelStatistics": self._model_statistics,
            "ModelConfig": self._model_config,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
        }

    def methods(self) -> dict[str, Method]:
        """All methods of the service, by path."""
        infer = Method(
            pb.ModelInferRequest,
            self._infer if self._tracing is None else partial(self._traced, self._tracing),
            self._read,
        )
        stream = StreamedInference(self._reader, self._infer_streamed).method()
        methods = {f"/{SERVICE}/ModelInfer": infer, f"/{SERVICE}/ModelStreamInfer": stream}
        service = pb.DESCRIPTOR.services_by_name[SERVICE.rpartition(".")[2]]
        for name, handler in self.handlers().items():
            request: type[Message] = getattr(pb, service.methods_by_name[name].input_type.name)
            methods[f"/{SERVICE}/{name}"] = Method(request, self._answering(name, handler))
        return methods

    def handed_methods(self) -> dict[str, Method]:
        """Those that other servers hand on, by name; of a stream its requests."""
        methods = self.methods()
        methods[f"/{SERVICE}/{STREAMED}"] = Method(pb.ModelInferRequest, self._infer_streamed, self._read)
        return {name: methods[f"/{SERVICE}/{name}"] for name in HANDED_ON}

    def _read(self, data: bytes) -> GrpcRequest:
        try:
            return self._reader.read(data)
        except TiercelError as error:
            raise CallError(Status[error.grpc_status], error.message) from error

    def _traced(self, tracing: Tracing, received: GrpcRequest, call: Call) -> None:
        node_id = self._handing.node_id if self._handing is not None else ""
        attributes = {"tiercel.model": received.request.model, "tiercel.node": node_id}
        trace_context = {name: text for name in TRACE_CONTEXT if isinstance(text := call.head.metadata.get(name), str)}
        call.span = tracing.begin("infer", trace_context, call.arrived, attributes)
        with call.span.current():
            self._infer(received, call)

    def _infer(self, received: GrpcRequest, call: Call) -> None:
        request = received.request
        try:
            self._check(call, request.model)
        except TiercelError as error:
            _fail(call, error)
            return
        handing = self._handing
        if handing is not None:
            if handing.is_due(request.model, call):
                handing.hand_on("ModelInfer", request.model, received.data, call)
                return
            if not request.version and handing.is_sooner(request.model, call):
                here = partial(self._infer_here, received, call)
                handing.hand_on("ModelInfer", request.model, received.data, call, here)
                return
        self._infer_here(received, call)

    def _infer_streamed(self, received: GrpcRequest, call: Call) -> None:
        model, generation, handing = received.request.model, self._generation, self._handing
        is_elsewhere = handing is not None and handing.is_due(model, call)
        if generation is None or not is_prompt(received) or not (is_elsewhere or generation.generates(model)):
            self._infer(received, call)
            return
        try:
            self._check(call, model)
            if handing is not None and is_elsewhere:
                handing.hand_on(STREAMED, model, received.data, call)
            else:
                generation.begin(received, call)
        except TiercelError as error:
            _fail(call, error)

    def _infer_here(self, received: GrpcRequest, call: Call) -> None:
        request = received.request
        request.arrived = call.arrived
        remaining = call.remaining()
        if remaining is not None:
            request.timeout = remaining if request.timeout is None else min(remaining, request.timeout)

        def on_answer(result: InferResult | TiercelError) -> None:
            if call.is_done:  # the caller went away
                return
            if isinstance(result, TiercelError):
                _fail(call, result)
                return
            try:
                call.answer(write_answer(result, received))
            except Exception:  # the border: one answer's defect must not reach the executor
                _logger.exception("An answer could not be written")
                call.finish(Status.INTERNAL, "the server failed; its log says more")

        pending = self._plane.submit(request, on_answer)
        if pending is not None and not call.is_done:
            call.on_cancel = pending.cancel

    def _check(self, call: Call, model: str) -> None:
        # What another server has let in is counted there.
        if isinstance(call, HandedCall) and call.is_proven and self._sees(call, model):
            return
        self._gate.check(call.caller, model, call.head.authorization)

    def _model_ready(self, request: pb.ModelReadyRequest, call: Call) -> pb.ModelReadyResponse:
        self._check(call, request.name)
        return pb.ModelReadyResponse(ready=self._plane.is_model_ready(request.name, request.version))

    def _model_metadata(self, request: pb.ModelMetadataRequest, call: Call) -> pb.ModelMetadataResponse:
        self._check(call, request.name)
        metadata = self._plane.model_metadata(request.name, request.version)
        metadata.pop("parameters", None)  # an endpoint's; the protocol has no place for them here
        return pb.ModelMetadataResponse(**metadata)

    def _model_statistics(self, request: pb.ModelStatisticsRequest, call: Call) -> pb.ModelStatisticsResponse:
        if request.name:
            self._check(call, request.name)
        sees = partial(self._sees, call)
        return pb.ModelStatisticsResponse(**self._descriptions.statistics(request.name, request.version, sees))

    def _sees(self, call: Call, model: str) -> bool:
        return self._gate.sees(call.caller, model, call.head.authorization)

    def _model_config(self, request: pb.ModelConfigRequest, call: Call) -> pb.ModelConfigResponse:
        self._check(call, request.name)
        config: Any = self._descriptions.config(request.name, request.version)
        return pb.ModelConfigResponse(config=config)

    async def _index(self, request: pb.RepositoryIndexRequest, call: Call) -> pb.RepositoryIndexResponse:
        lines = [line for line in await self._lifecycle.index(request.ready) if self._sees(call, line["name"])]
        return pb.RepositoryIndexResponse(models=[pb.RepositoryIndexResponse.ModelIndex(**line) for line in lines])

    async def _load(self, request: pb.RepositoryModelLoadRequest, _: Call) -> pb.RepositoryModelLoadResponse:
        given = {
            name: getattr(value, value.WhichOneof("parameter_choice") or "string_param")
            for name, value in request.parameters.items()
        }
        await self._gate.look()  # what is loaded now answers by the rules of now
        await self._uploads.load(request.model_name, given)
        return pb.RepositoryModelLoadResponse()

    async def _unload(self, request: pb.RepositoryModelUnloadRequest, _: Call) -> pb.RepositoryModelUnloadResponse:
        await self._lifecycle.unload(request.model_name)
        return pb.RepositoryModelUnloadResponse()

    def _answering(self, name: str, handler: Handler) -> Callable[[Any, Call], None]:
        """A handler's answer or error becomes the call's; one that takes time gets a task that outlives the caller."""

        def handle(request: Any, call: Call) -> None:
            try:
                if name in _FOR_OPERATORS:
                    self._operators.check(str(call.head.metadata.get("authorization", "")))
                if name in HANDED_ON and self._handing is not None and self._handing.is_due(request.name, call):
                    self._check(call, request.name)
                    self._handing.hand_on(name, request.name, request.SerializeToString(), call)
                    return
                answer = handler(request, call)
            except TiercelError as error:
                _fail(call, error)
                return
            if isinstance(answer, Message):
                call.answer(answer.SerializeToString())
            elif inspect.iscoroutine(answer):
                call.set_time_limit()
                self._start_task(_finish(answer, call), name)

        return handle


async def _finish(work: Awaitable[Message], call: Call) -> None:
    try:
        answer = await work
        call.answer(answer.SerializeToString())
    except TiercelError as error:
        _fail(call, error)
    except Exception:  # the border: one call's defect is logged and told, and never ends the server
        _logger.exception("A gRPC call failed")
        call.finish(Status.INTERNAL, "the server failed; its log says more")
    finally:
        call.finish(Status.UNAVAILABLE, "the server is leaving; ask the one that follows it")


def _fail(call: Call, error: TiercelError) -> None:
    status, details = Status[error.grpc_status], b""
    if isinstance(error, RateExceededError):
        details = wire.retry_details(status, error.message, retry_after_seconds(error.seconds))
    call.finish(status, error.message, details)


def grpc_limits(settings: Settings) -> GrpcLimits:
    """What the settings let callers do; the limits of REST hold where there are none of gRPC's own."""
    http2 = Http2Limits(
        settings.max_header_bytes, _STREAMS, _WINDOW_BYTES, settings.idle_timeout, settings.read_timeout
    )
    return GrpcLimits(http2, settings.max_body_bytes, settings.max_connections, settings.max_connections)


class GrpcServer:
    """The gRPC side of the server.

    Args:
        servicer: Answers calls.
        limits: What callers may do.
        budget: Bytes of requests that are not whole and of answers that wait, shared by all connections.

    Attributes:
        handed_calls: Answers those that other servers hand on.
    """

    def __init__(self, servicer: InferenceServicer, limits: GrpcLimits, budget: Budget) -> None:
        self._health = Health((SERVICE,))
        services = (SERVICE, health.SERVICE, *reflection.SERVICES)
        of_service = servicer.methods()
        self.handed_calls = HandedCalls(servicer.handed_methods())
        methods = of_service | self._health.methods() | Reflection(services).methods()
        self._listener = Listener(methods, limits, budget)

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._listener.connections)

    async def start(self, listening: socket.socket, door: EncryptedDoor | None = None) -> None:
        """Accept connections on a socket that listens, encrypted where there is a door; may be called again."""
        await self._listener.start(listening, door)

    def set_ready(self, *, ready: bool) -> None:
        """What the health service says."""
        self._health.set(serving=ready)

    async def stop(self, grace: float) -> None:
        """Take no new calls; those in flight get ``grace`` seconds."""
        await self._listener.stop(grace)
