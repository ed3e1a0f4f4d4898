"""Versions of endpoints for a browser: put side by side, their files removed or kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiercel.broker.conversion import endpoint_from_proto
from tiercel.broker.dashboard.routes import Route
from tiercel.core.errors import wrong_field
from tiercel.core.lineage import Lineage
from tiercel.core.models import ModelCard, differences
from tiercel.core.wire import from_proto
from tiercel.v1 import jobs_pb2, lineage_pb2, models_pb2

if TYPE_CHECKING:
    import grpc

    from tiercel.broker.api.methods import Calls
    from tiercel.broker.dashboard.asked import Asked
    from tiercel.core.jsonable import Json

    Context = grpc.aio.ServicerContext[Any, Any]

_MOST = 2**31 - 1


class Versions:
    """Reads and changes what is kept of versions.

    Args:
        calls: Carries out what is asked.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def routes(self) -> tuple[Route, ...]:
        """What is asked of them."""
        path = "endpoints/{endpoint}"
        return (
            Route("GET", f"{path}/compare", "LineageService/GetLineage", _lineage_request, read=self._compare),
            Route("POST", f"{path}/remove", "ModelsService/RemoveVersion", _remove_request, lambda _: {}),
            Route("POST", f"{path}/keep", "ModelsService/KeepVersions", _keep_request, lambda _: {}),
        )

    async def _compare(self, asked: Asked, context: Context) -> list[Json]:
        """In what two versions differ, as ``tiercel models compare --json`` says it."""
        name = asked.part("endpoint")
        about = await self._answer(
            "JobsService/ExplainEndpoint", jobs_pb2.ExplainEndpointRequest(endpoint=name), context
        )
        lineages = await self._answer("LineageService/GetLineage", _lineage_request(asked), context)
        versions = {each.version: each for each in endpoint_from_proto(about.endpoint).versions}
        found = {each.version: from_proto(Lineage, each) for each in lineages.versions}
        cards = []
        for field in ("first", "second"):
            number = asked.number(field, 0, _MOST)
            if number not in versions or number not in found:
                there = ", ".join(str(each) for each in versions if each in found) or "none"
                raise wrong_field(field, f"endpoint {name} has no version {number}; it has {there}")
            cards.append(ModelCard(versions[number], found[number]))
        return [each.to_json() for each in differences(*cards)]

    async def _answer(self, method: str, request: Any, context: Context) -> Any:
        answer: Any = self._calls.handler(f"/tiercel.v1.{method}").unary_unary
        return await answer(request, context)


def _lineage_request(asked: Asked) -> lineage_pb2.GetLineageRequest:
    return lineage_pb2.GetLineageRequest(endpoint=asked.part("endpoint"))


def _remove_request(asked: Asked) -> models_pb2.RemoveVersionRequest:
    return models_pb2.RemoveVersionRequest(endpoint=asked.part("endpoint"), version=asked.count("version"))


def _keep_request(asked: Asked) -> models_pb2.KeepVersionsRequest:
    return models_pb2.KeepVersionsRequest(endpoint=asked.part("endpoint"), count=asked.count("count"))
