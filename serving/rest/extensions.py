"""Triton's extensions beside inference, over REST: metrics, statistics of all models, model configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial

from tiercel.core.errors import NotFoundError
from tiercel.serving.descriptions import Descriptions
from tiercel.serving.explaining.recent_requests import RecentRequests
from tiercel.serving.process.renewal import Renewal
from tiercel.serving.rest.handing import RestHanding
from tiercel.serving.rest.messages import HttpRequest, HttpResponse, json_response
from tiercel.serving.rest.metrics import Metrics, write
from tiercel.serving.rest.routes import Parameters, Routes, from_programs_only


def add_metrics(routes: Routes, metrics: Metrics) -> None:
    """Have ``GET /metrics`` answered with Prometheus' text format, or OpenMetrics where it is asked for."""

    async def answer(request: HttpRequest, _: Parameters) -> HttpResponse:
        """The numbers of the server for Prometheus."""
        routes.check_overview(request)
        # Of a hundred models it is thousands of lines: requests come in between while another thread writes them.
        accept = request.headers.get(b"accept", b"").decode("latin-1")
        text, media_type = await asyncio.to_thread(write, metrics.snapshot(), accept)
        return HttpResponse(200, text, media_type.encode("latin-1"))

    routes.add("GET", "/metrics", answer)


def add_descriptions(routes: Routes, descriptions: Descriptions) -> None:
    """Have statistics and configurations told: of all models, of one, and of one of its versions."""

    def statistics(request: HttpRequest, of: Parameters) -> HttpResponse:
        """Triton's statistics: of all models, of one, or of one version."""
        sees = partial(routes.sees, request)
        return json_response(descriptions.statistics(of.get("model", ""), of.get("version", ""), sees))

    def config(_: HttpRequest, of: Parameters) -> HttpResponse:
        """A model's configuration, as Triton tells it."""
        return json_response(descriptions.config(of["model"], of.get("version", "")))

    routes.add("GET", "/v2/models/stats", statistics)
    for model in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        routes.add("GET", f"{model}/stats", statistics)
        routes.add("GET", f"{model}/config", config)


def add_explaining(routes: Routes, recent: RecentRequests, handing: RestHanding) -> None:
    """Have ``GET /v2/models/M/requests/ID`` tell what became of a request with that id, whichever node answered it."""

    def explain(request: HttpRequest, of: Parameters) -> HttpResponse | Coroutine[None, None, HttpResponse]:
        """Which node, version and batch answered a request with an id of its own, and how long each step took."""
        model, request_id = of["model"], of["id"]
        found = recent.find(model, request_id)
        if found is None:
            return elsewhere(request, model, request_id)
        return json_response({"model": model, "id": request_id, "node": handing.node_id} | found.as_json())

    async def elsewhere(request: HttpRequest, model: str, request_id: str) -> HttpResponse:
        answer = await handing.first_to_know(request, model)
        if answer is None:
            raise NotFoundError(
                f"no node that was asked knows a request with the id '{request_id[:128]}' to '{model[:200]}' (any "
                "more): only requests with an id of their own are remembered, the last few thousand of each model"
            )
        return answer

    routes.add("GET", "/v2/models/{model}/requests/{id}", explain)


def add_handover(routes: Routes, renewal: Renewal) -> None:
    """Have ``POST /v2/handover`` hand over to a fresh process; the answer comes when that one has taken over."""

    async def hand_over(_: HttpRequest, __: Parameters) -> HttpResponse:
        """Hands everything over to a fresh process, and tells its id."""
        return json_response({"pid": await renewal.hand_over()})

    routes.add("POST", "/v2/handover", from_programs_only(hand_over))
