"""The addresses of the REST interface and what each does."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import orjson

from tiercel.serving.accounts import read_shares
from tiercel.serving.dataplane import DataPlane, InferResult
from tiercel.serving.errors import (
    InvalidRequestError,
    MethodNotAllowedError,
    NotAllowedError,
    NotFoundError,
    ServingError,
    UnsupportedEncodingError,
)
from tiercel.serving.lifecycle import Lifecycle
from tiercel.serving.rest.codec import decode_request, encode_result
from tiercel.serving.rest.messages import HttpRequest, HttpResponse, Respond, error_response, json_response

_logger = logging.getLogger(__name__)

StartTask = Callable[[Coroutine[Any, Any, None], str], object]


@dataclass(frozen=True, slots=True)
class Route:
    """What a path means.

    Attributes:
        action: Name of what to do, a key of the tables below.
        model: Name of the model, or empty.
        version: Its version, or empty.
    """

    action: str
    model: str = ""
    version: str = ""

    @property
    def method(self) -> bytes:
        """The HTTP method that fits."""
        return b"POST" if self.action in {"infer", "index", "load", "unload", "shares"} else b"GET"


_SERVER_ROUTES = {
    ("v2",): Route("server"),
    ("v2", "health", "live"): Route("live"),
    ("v2", "health", "ready"): Route("ready"),
    ("v2", "repository", "index"): Route("index"),
    ("v2", "usage"): Route("usage"),
    ("v2", "shares"): Route("shares"),
}
_MODEL_ACTIONS = {"ready": "model_ready", "infer": "infer", "stats": "statistics"}


@lru_cache(1024)
def route(target: bytes) -> Route:
    """What a request's target means.

    Raises:
        NotFoundError: Nothing.
    """
    try:
        path = target.partition(b"?")[0].decode("ascii")
        parts = tuple(unquote(part, errors="strict") for part in path.split("/")[1:])
    except UnicodeDecodeError as error:
        raise NotFoundError("the path is not valid UTF-8") from error
    found = _SERVER_ROUTES.get(parts) or _model_route(parts)
    if found is None:
        raise NotFoundError(f"there is nothing at {path[:200]}; GET /v2 tells what this server is")
    return found


def _model_route(parts: tuple[str, ...]) -> Route | None:
    match parts:
        case ("v2", "models", model):
            return Route("metadata", model)
        case ("v2", "models", model, "versions", version):
            return Route("metadata", model, version)
        case ("v2", "models", model, action) if action in _MODEL_ACTIONS:
            return Route(_MODEL_ACTIONS[action], model)
        case ("v2", "models", model, "versions", version, action) if action in _MODEL_ACTIONS:
            return Route(_MODEL_ACTIONS[action], model, version)
        case ("v2", "repository", "models", model, ("load" | "unload") as action):
            return Route(action, model)
    return None


class Routes:
    """Handles requests.

    Args:
        plane: Answers inference.
        lifecycle: Brings models up and down.
        start_task: Starts a task that somebody owns.
        max_json_bytes: Largest JSON of an inference request.
    """

    def __init__(self, plane: DataPlane, lifecycle: Lifecycle, start_task: StartTask, max_json_bytes: int) -> None:
        self._plane = plane
        self._lifecycle = lifecycle
        self._start_task = start_task
        self._max_json_bytes = max_json_bytes
        self._immediate: dict[str, Callable[[Route], HttpResponse]] = {
            "server": lambda _: json_response(plane.server_metadata()),
            "live": lambda _: json_response({"live": True}),
            "ready": self._ready,
            "model_ready": self._model_ready,
            "metadata": lambda route: json_response(plane.model_metadata(route.model, route.version)),
            "usage": lambda _: json_response(plane.usage()),
            "statistics": lambda route: json_response(plane.model_statistics(route.model, route.version)),
        }
        self._slow: dict[str, Callable[[Route, HttpRequest], Awaitable[HttpResponse]]] = {
            "index": self._index,
            "load": self._load,
            "unload": self._unload,
            "shares": self._shares,
        }

    def handle(self, request: HttpRequest, respond: Respond) -> None:
        """Handle a request; ``respond`` is called exactly once, now or later."""
        try:
            found = route(request.target)
            if request.method != found.method or b"content-encoding" in request.headers:
                _refuse_form(found, request)
            if found.action == "infer":
                self._infer(found, request, respond)
            elif found.action in self._slow:
                self._start_task(self._answer_later(found, request, respond), found.action)
            else:
                respond(self._immediate[found.action](found))
        except ServingError as error:
            respond(error_response(error))
        except Exception as error:
            respond(_defect("A request", error))

    def _infer(self, found: Route, request: HttpRequest, respond: Respond) -> None:
        question, form = decode_request(request, found.model, found.version, self._max_json_bytes)

        def answered(result: InferResult | ServingError) -> None:
            try:
                response = error_response(result) if isinstance(result, ServingError) else encode_result(result, form)
            except Exception as error:
                response = _defect("Encoding an answer", error)
            respond(response)

        self._plane.submit(question, answered)

    async def _answer_later(self, found: Route, request: HttpRequest, respond: Respond) -> None:
        try:
            response = await self._slow[found.action](found, request)
        except ServingError as error:
            response = error_response(error)
        except Exception as error:
            response = _defect(found.action, error)
        respond(response)

    def _ready(self, _: Route) -> HttpResponse:
        ready = self._plane.is_ready()
        return json_response({"ready": ready}, 200 if ready else 400)

    def _model_ready(self, found: Route) -> HttpResponse:
        ready = self._plane.is_model_ready(found.model, found.version)
        return json_response({"name": found.model, "ready": ready}, 200 if ready else 400)

    async def _index(self, _: Route, request: HttpRequest) -> HttpResponse:
        only_ready = _body_object(request).get("ready", False)
        if type(only_ready) is not bool:
            raise InvalidRequestError("ready must be true or false")
        return json_response(await self._lifecycle.index(only_ready))

    async def _load(self, found: Route, request: HttpRequest) -> HttpResponse:
        _refuse_web_page(request)
        if _body_object(request).get("parameters"):
            raise InvalidRequestError("parameters: a load takes none; put the version into the repository instead")
        version = await self._lifecycle.load(found.model)
        return json_response({"name": found.model, "version": str(version), "state": "READY"})

    async def _unload(self, found: Route, request: HttpRequest) -> HttpResponse:
        _refuse_web_page(request)
        await self._lifecycle.unload(found.model)
        return json_response({"name": found.model, "state": "UNAVAILABLE"})

    async def _shares(self, _: Route, request: HttpRequest) -> HttpResponse:
        _refuse_web_page(request)
        shares = read_shares(_body_object(request))
        self._plane.declare_shares(shares)
        return json_response({"models": len(shares)})


def _body_object(request: HttpRequest) -> dict[str, Any]:
    if not request.body:
        return {}
    try:
        content = orjson.loads(request.body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"the body is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise InvalidRequestError("the body must be a JSON object")
    return content


def _refuse_form(found: Route, request: HttpRequest) -> None:
    """Raise if the method or the encoding does not fit."""
    if request.method != found.method:
        allowed = found.method.decode()
        raise MethodNotAllowedError(f"use {allowed} here, not {request.method.decode('ascii', 'replace')}", allowed)
    if request.headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise UnsupportedEncodingError("compressed bodies are not read here; send the body as it is")


def _defect(what: str, error: Exception) -> HttpResponse:
    """The answer when the fault is the server's."""
    _logger.error("%s failed", what, exc_info=error)
    return error_response(ServingError("the server failed; its log says more"))


def _refuse_web_page(request: HttpRequest) -> None:
    """A page that somebody on this machine looks at could reach a server on loopback."""
    if b"origin" in request.headers:
        raise NotAllowedError("web pages may not load or unload models; a program sends no Origin header")
