"""A server that speaks the Open Inference Protocol, in the test's own event loop, with a model that doubles."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class DoublingModel:
    """The model, which is asked at ``/v2/models/digits``."""

    requests: list[Any] = field(default_factory=list)  # what it was asked
    keys: list[str] = field(default_factory=list)  # the ``Authorization`` of each of these
    traceparents: list[str] = field(default_factory=list)  # and their ``traceparent``
    says: dict[str, Any] = field(default_factory=dict)  # parameters of its answers
    # Makes what it says instead of what it takes; None for what it should.
    answer: Callable[[], web.Response] | None = None
    asked: int = 0  # how often it was asked what it takes
    runner: web.AppRunner | None = None

    async def metadata(self, _: web.Request) -> web.Response:
        """Tell what it takes."""
        self.asked += 1
        if self.answer is not None:
            return self.answer()
        inputs = [{"name": "input", "datatype": "FP32", "shape": [-1, 2]}]
        return web.json_response({"name": "digits", "inputs": inputs, "outputs": []})

    async def infer(self, request: web.Request) -> web.Response:
        """Double what it gets."""
        body = await request.json()
        self.requests.append(body)
        self.keys.append(request.headers.get("Authorization", ""))
        self.traceparents.append(request.headers.get("traceparent", ""))
        (tensor,) = body["inputs"]
        if tensor["shape"][1:] != [2]:
            return web.json_response({"error": "input has the shape of another model"}, status=400)
        output = {**tensor, "name": "output", "data": [2 * value for value in tensor["data"]]}
        said = {"parameters": self.says} if self.says else {}
        return web.json_response({"model_name": "digits", "model_version": "3", "outputs": [output], **said})

    async def start(self, host: str = "127.0.0.1", context: ssl.SSLContext | None = None, port: int = 0) -> str:
        """Listen; returns ``host:port``."""
        app = web.Application()
        app.router.add_get("/v2/models/digits", self.metadata)
        app.router.add_post("/v2/models/digits/infer", self.infer)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        site = web.TCPSite(self.runner, host, port, ssl_context=context)
        await site.start()
        host, port = self.runner.addresses[0][:2]
        return f"{host}:{port}"

    async def stop(self) -> None:
        """Listen no more."""
        if self.runner is not None:
            await self.runner.cleanup()
