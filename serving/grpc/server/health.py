"""The health service, ``grpc.health.v1``."""

from __future__ import annotations

from typing import Any

from grpc_health.v1 import health_pb2

from tiercel.serving.grpc.server.calls import Call, Method
from tiercel.serving.grpc.server.wire import Status

SERVICE = "grpc.health.v1.Health"
# Each keeps a call of those that the server answers at the same time.
_MAX_WATCHERS = 100


class Health:
    """Says which services answer, once or whenever it changes.

    Args:
        services: Their names; all of them, and the empty name for the server, change together.
    """

    def __init__(self, services: tuple[str, ...]) -> None:
        self._services = frozenset(services) | {""}
        self._status = health_pb2.HealthCheckResponse.NOT_SERVING
        self._watchers: dict[Call, str] = {}

    def methods(self) -> dict[str, Method]:
        """By path."""
        return {
            f"/{SERVICE}/Check": Method(health_pb2.HealthCheckRequest, self._check),
            f"/{SERVICE}/Watch": Method(health_pb2.HealthCheckRequest, self._watch),
        }

    def set(self, *, serving: bool) -> None:
        """What it says from now on."""
        kinds = health_pb2.HealthCheckResponse
        self._status = kinds.SERVING if serving else kinds.NOT_SERVING
        for call, service in tuple(self._watchers.items()):
            call.send(self._answer(service))

    def _check(self, request: Any, call: Call) -> None:
        if request.service in self._services:
            call.answer(self._answer(request.service))
        else:
            call.finish(Status.NOT_FOUND, f"there is no service '{request.service[:100]}'")

    def _watch(self, request: Any, call: Call) -> None:
        if len(self._watchers) >= _MAX_WATCHERS:
            call.finish(Status.RESOURCE_EXHAUSTED, f"{_MAX_WATCHERS} calls watch already; use Check")
            return

        def cancel() -> None:
            self._watchers.pop(call, None)

        def leave() -> None:
            cancel()
            call.finish(Status.UNAVAILABLE, "the server leaves")

        self._watchers[call] = request.service
        call.on_cancel = cancel
        call.on_leave = leave
        call.set_time_limit()
        call.send(self._answer(request.service))

    def _answer(self, service: str) -> bytes:
        kinds = health_pb2.HealthCheckResponse
        status = self._status if service in self._services else kinds.SERVICE_UNKNOWN
        return bytes(kinds(status=status).SerializeToString())
