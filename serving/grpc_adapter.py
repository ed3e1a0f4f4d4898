"""The Open Inference Protocol over gRPC, with health and reflection.

Imported by the server's entry only: ``tritonclient.grpc`` registers messages of the same names, and one process cannot
hold both.
"""
# ruff: noqa: N802 - the protocol names the methods

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import grpc
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.inference import open_inference_grpc_pb2_grpc as pb_grpc
from tiercel.serving.dataplane import DataPlane
from tiercel.serving.errors import InvalidRequestError, NotReadyError, ServingError
from tiercel.serving.grpc_codec import decode_request, encode_result
from tiercel.serving.lifecycle import Lifecycle

_logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")

StartTask = Callable[[Coroutine[Any, Any, None], str], object]
Context = aio.ServicerContext[Any, Any]
SERVICE = "inference.GRPCInferenceService"


class InferenceServicer(pb_grpc.GRPCInferenceServiceServicer):
    """Translates calls; all behaviour is the data plane's and the lifecycle's.

    Args:
        plane: Answers inference.
        lifecycle: Brings models up and down.
        start_task: Starts a task that somebody owns, so that a load goes on when its caller leaves.
    """

    def __init__(self, plane: DataPlane, lifecycle: Lifecycle, start_task: StartTask) -> None:
        self._plane = plane
        self._lifecycle = lifecycle
        self._start_task = start_task

    async def ServerLive(self, request: pb.ServerLiveRequest, context: Context) -> pb.ServerLiveResponse:
        """Whether the server runs."""
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(self, request: pb.ServerReadyRequest, context: Context) -> pb.ServerReadyResponse:
        """Whether all models that were on disk at the start have been tried."""
        return pb.ServerReadyResponse(ready=self._plane.is_ready())

    async def ModelReady(self, request: pb.ModelReadyRequest, context: Context) -> pb.ModelReadyResponse:
        """Whether a model answers."""
        return pb.ModelReadyResponse(ready=self._plane.is_model_ready(request.name, request.version))

    async def ServerMetadata(self, request: pb.ServerMetadataRequest, context: Context) -> pb.ServerMetadataResponse:
        """Name, version and extensions of the server."""
        return pb.ServerMetadataResponse(**self._plane.server_metadata())

    async def ModelMetadata(self, request: pb.ModelMetadataRequest, context: Context) -> pb.ModelMetadataResponse:
        """Inputs and outputs of a model."""

        async def describe() -> pb.ModelMetadataResponse:
            return pb.ModelMetadataResponse(**self._plane.model_metadata(request.name, request.version))

        return await _answer(describe(), context)

    async def ModelInfer(self, request: pb.ModelInferRequest, context: Context) -> pb.ModelInferResponse:
        """Inference."""

        async def infer() -> pb.ModelInferResponse:
            question = decode_request(request)
            remaining = context.time_remaining()
            if remaining is not None:
                question.timeout = remaining if question.timeout is None else min(remaining, question.timeout)
            return encode_result(await self._plane.infer(question), request)

        return await _answer(infer(), context)

    async def RepositoryIndex(self, request: pb.RepositoryIndexRequest, context: Context) -> pb.RepositoryIndexResponse:
        """Models, versions and their states."""

        async def index() -> pb.RepositoryIndexResponse:
            lines = await self._lifecycle.index(request.ready)
            models = [pb.RepositoryIndexResponse.ModelIndex(**line) for line in lines]
            return pb.RepositoryIndexResponse(models=models)

        return await _answer(index(), context)

    async def RepositoryModelLoad(
        self, request: pb.RepositoryModelLoadRequest, context: Context
    ) -> pb.RepositoryModelLoadResponse:
        """Let the newest version on disk answer."""

        async def load() -> pb.RepositoryModelLoadResponse:
            if request.parameters:
                raise InvalidRequestError("parameters: a load takes none; put the version into the repository instead")
            await self._owned(self._lifecycle.load(request.model_name), "load")
            return pb.RepositoryModelLoadResponse()

        return await _answer(load(), context)

    async def RepositoryModelUnload(
        self, request: pb.RepositoryModelUnloadRequest, context: Context
    ) -> pb.RepositoryModelUnloadResponse:
        """Stop answering for a model."""

        async def unload() -> pb.RepositoryModelUnloadResponse:
            await self._owned(self._lifecycle.unload(request.model_name), "unload")
            return pb.RepositoryModelUnloadResponse()

        return await _answer(unload(), context)

    async def _owned(self, work: Coroutine[Any, Any, Any], what: str) -> None:
        """Wait for work that goes on even if the caller, and with it this call, is gone."""
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            failure: Exception = NotReadyError("the server is leaving; ask the one that follows it")
            try:
                await work
            except Exception as error:
                failure = error
            else:
                if not outcome.done():
                    outcome.set_result(None)
            finally:
                if not outcome.done():
                    outcome.set_exception(failure)

        self._start_task(run(), what)
        await outcome


async def _answer(work: Awaitable[Answer], context: Context) -> Answer:
    """Await an answer; a failure becomes the call's status."""
    try:
        return await work
    except ServingError as error:
        status, message = grpc.StatusCode[error.grpc_status], error.message
    except Exception:  # the border: one call's defect is logged and told, and never ends the server
        _logger.exception("A gRPC call failed")
        status, message = grpc.StatusCode.INTERNAL, "the server failed; its log says more"
    await context.abort(status, message)
    raise AssertionError("abort always raises")


class GrpcServer:
    """The gRPC side of the server.

    Args:
        servicer: Answers calls.
        max_message_bytes: Largest request.
        max_calls: Calls at the same time; more are refused.
    """

    def __init__(self, servicer: InferenceServicer, max_message_bytes: int, max_calls: int) -> None:
        self._server = aio.server(
            options=[
                ("grpc.so_reuseport", 0),  # or a port that is in use would be shared, not refused
                ("grpc.max_receive_message_length", max_message_bytes),
                ("grpc.max_send_message_length", -1),
            ],
            maximum_concurrent_rpcs=max_calls,
        )
        self._health = health.aio.HealthServicer()
        pb_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)

    async def start(self, host: str, port: int) -> int:
        """Listen.

        Returns:
            The port.

        Raises:
            RuntimeError: The address is not free.
        """
        await self.set_ready(False)
        bound = self._server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        await self._server.start()
        return bound

    async def set_ready(self, ready: bool) -> None:
        """What the health service says."""
        status = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        await self._health.set("", status)
        await self._health.set(SERVICE, status)

    async def stop(self, grace: float) -> None:
        """Take no new calls; those in flight get ``grace`` seconds."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace)
