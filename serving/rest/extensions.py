"""Triton's extensions beside inference, over REST: metrics, statistics of all models, model configuration."""

from __future__ import annotations

import asyncio

from tiercel.serving.metrics import Metrics, write
from tiercel.serving.rest.messages import HttpRequest, HttpResponse
from tiercel.serving.rest.routes import Parameters, Routes


def add_metrics(routes: Routes, metrics: Metrics) -> None:
    """Have ``GET /metrics`` answered with Prometheus' text format, or OpenMetrics where it is asked for."""

    async def answer(request: HttpRequest, _: Parameters) -> HttpResponse:
        # Of a hundred models it is thousands of lines: requests come in between while another thread writes them.
        accept = request.headers.get(b"accept", b"").decode("latin-1")
        text, media_type = await asyncio.to_thread(write, metrics.snapshot(), accept)
        return HttpResponse(200, text, media_type.encode("latin-1"))

    routes.add("GET", "/metrics", answer)
