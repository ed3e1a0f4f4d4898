"""What the REST interface answers at each of its addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial, wraps
from http import HTTPStatus
from typing import Any

import orjson

from tiercel.core.errors import InvalidRequestError, NotAllowedError, TiercelError
from tiercel.core.traces import Tracing
from tiercel.serving.access.gate import Gate
from tiercel.serving.accounting.accounts import read_shares
from tiercel.serving.dataplane import DataPlane
from tiercel.serving.loading.lifecycle import Lifecycle
from tiercel.serving.loading.uploads import Uploads
from tiercel.serving.operators import Operators
from tiercel.serving.requests import InferResult
from tiercel.serving.rest.compression import Inflater
from tiercel.serving.rest.decoding import decode_request
from tiercel.serving.rest.encoding import encode_result
from tiercel.serving.rest.handing import Otherwise, RestHanding, time_left
from tiercel.serving.rest.hosts import Hosts
from tiercel.serving.rest.inference import infer_by_template
from tiercel.serving.rest.messages import (
    ACCEPTED_ENCODINGS,
    Handler,
    HttpRefusedError,
    HttpRequest,
    HttpResponse,
    Respond,
    answer_to_defect,
    error_response,
    json_response,
    since_of,
)
from tiercel.serving.rest.packing import PackedAnswer, coding_for
from tiercel.serving.rest.recognition import recognise
from tiercel.serving.rest.table import RouteTable
from tiercel.serving.rest.traced import traced
from tiercel.serving.routing.calls import Cancellable, Handed
from tiercel.serving.routing.relay import HOPS
from tiercel.serving.tasks import StartTask

# Bodies of more bytes than this are read in another thread.
MOST_AT_ONCE = 64 * 1024

Parameters = Mapping[str, str]
# At once, or a coroutine that a task of its own will run.
Answer = HttpResponse | Coroutine[Any, Any, HttpResponse]
Endpoint = Callable[[HttpRequest, Parameters], Answer]
_Handler = Callable[[HttpRequest, Parameters, Respond], Cancellable | None]


class Routes:
    """Handles requests. Who has something to add to the interface adds a line: :meth:`add`.

    Args:
        inflater: Unpacks compressed bodies; None where they are refused.
        hosts: By which names the server may be addressed.
        gate: Who may ask which model; None where everybody may.
        handing: Hands on what other nodes answer; None where there are no others.
        tracing: Makes spans of requests for inference; None for none.
    """

    def __init__(
        self,
        plane: DataPlane,
        lifecycle: Lifecycle,
        start_task: StartTask,
        max_json_bytes: int,
        uploads: Uploads,
        operators: Operators,
        inflater: Inflater | None = None,
        hosts: Hosts | None = None,
        gate: Gate | None = None,
        handing: RestHanding | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._gate = gate if gate is not None else Gate(operators)
        self._handing = handing
        self._hosts = hosts if hosts is not None else Hosts()
        self._uploads = uploads
        self._operators = operators
        self._plane = plane
        self._lifecycle = lifecycle
        self._start_task = start_task
        self._max_json_bytes = max_json_bytes
        self._inflater = inflater
        self._in_usage: dict[str, Callable[[float], Any]] = {}
        self._table: RouteTable[_Handler] = RouteTable()
        infer: _Handler = self._infer
        if tracing is not None:
            infer = traced("infer", infer, tracing, lambda: handing.node_id if handing is not None else "")
        for version in ("", "/versions/{version}"):
            model = "/v2/models/{model}" + version
            self._table.add("POST", f"{model}/infer", infer)
            self.add("GET", model, self._metadata)
            self.add("GET", f"{model}/ready", self._model_ready)
        self.add("GET", "/v2/models/{model}/canary", self._canary)
        self.add("GET", "/v2", self._server_metadata)
        self.add("GET", "/v2/health/live", self._live)
        self.add("GET", "/v2/health/ready", self._ready)
        self.add("GET", "/v2/usage", self._usage)
        self.add("POST", "/v2/shares", from_programs_only(self._shares))
        self.add("POST", "/v2/repository/index", self._index, for_all=True)
        self.add("POST", "/v2/repository/models/{model}/load", from_programs_only(self._load))
        self.add("POST", "/v2/repository/models/{model}/unload", from_programs_only(self._unload))

    def tell_in_usage(self, name: str, tell: Callable[[float], Any]) -> None:
        """Have what ``tell`` returns told at ``/v2/usage``, under a name of its own.

        Args:
            name: The name.
            tell: Is given when what is told is to have changed, by the clock of requests, or later.
        """
        self._in_usage[name] = tell

    def add(self, method: str, path: str, endpoint: Endpoint, *, for_all: bool = False) -> None:
        """Have ``endpoint`` answer at an address; see :meth:`RouteTable.add`.

        Args:
            method: In capital letters; HEAD comes with GET.
            path: Where; its parts ``{NAME}`` are given to the endpoint by name.
            endpoint: Gets the request and those parts; returns the answer, or a coroutine where it has to wait for
                something. What it raises becomes the answer.
            for_all: Whether POST is for everybody; else it is taken for a change of the server, which is for operators,
                and made also where the caller goes away meanwhile.
        """
        for_operators = method == "POST" and not for_all

        @wraps(endpoint)
        def handle(request: HttpRequest, parameters: Parameters, respond: Respond) -> Cancellable | None:
            if for_operators:
                self._operators.check(request.headers.get(b"authorization", b"").decode("latin-1"))
            answer = endpoint(request, parameters)
            if isinstance(answer, HttpResponse):
                respond(answer)
                return None
            work = None if for_operators else Handed()
            self._start_task(_answer_later(answer, path, respond, work), path)
            return work

        self._table.add(method, path, handle)

    def add_cancellable(
        self, method: str, path: str, handler: Callable[[HttpRequest, Parameters, Respond], Cancellable | None]
    ) -> None:
        """Have ``handler`` answer at an address, as :meth:`handle` does; it is for everybody."""
        self._table.add(method, path, handler)

    def described(self) -> Iterator[tuple[str, str, str]]:
        """Method and path of each address, and what is answered there, as its handler says."""
        for method, path, handler in self._table:
            yield method, path, handler.__doc__ or ""

    def handle(self, request: HttpRequest, respond: Respond, *, is_let_in: bool = False) -> Cancellable | None:
        """Handle a request; ``respond`` is called exactly once, now or later.

        Args:
            request: The request.
            respond: Takes the answer.
            is_let_in: It passed the gate already.

        Returns:
            What to cancel when the caller goes away, if that is of use; ``respond`` is not called after it.
        """
        headers = request.head.headers
        packed: PackedAnswer | None = None
        try:
            self._hosts.check(headers)
            found = self._table.find(request.head.method, request.head.target)
            if not is_let_in and (model := found.parameters.get("model")) is not None:
                self._let_in(request, model)
            if b"content-encoding" in headers and _is_packed(request):
                self._start_task(
                    _unpack(self._inflater_or_refusal(), request, respond, self._handle_unpacked), "unpack"
                )
                return None
            if b"accept-encoding" in headers and (coding := coding_for(headers[b"accept-encoding"])) is not None:
                packed = PackedAnswer(respond, coding, self._start_task)
                respond = packed.respond
            work = found.handler(request, found.parameters, respond)
            return work if work is None or packed is None else packed.instead_of(work)
        except TiercelError as error:
            respond(error_response(error))
        except Exception as error:
            respond(answer_to_defect("A request", error))
        return None

    def _let_in(self, request: HttpRequest, model: str) -> None:
        """Have the gate look at who asks; of what was handed on, at who asked there, and nothing is counted twice."""
        if HOPS in request.head.headers and self._handing is not None:
            request.caller, is_proven = self._handing.caller_of(request)
            if is_proven and self._gate.sees(request.caller, model, request.authorization):
                return
        self._gate.check(request.caller, model, request.authorization)

    def _handle_unpacked(self, request: HttpRequest, respond: Respond) -> Cancellable | None:
        return self.handle(request, respond, is_let_in=True)

    def _inflater_or_refusal(self) -> Inflater:
        if self._inflater is None:
            raise HttpRefusedError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                "compressed bodies are not read here; send the body as it is",
                ACCEPTED_ENCODINGS,
            )
        return self._inflater

    def _infer(self, request: HttpRequest, parameters: Parameters, respond: Respond) -> Cancellable | None:
        """Answers a request for inference; with a version in the path, by that version."""
        model, version = parameters["model"], parameters.get("version", "")
        if self._handing is not None and not version and self._handing.is_sooner(request, model):
            return self._hand_on(request, model, respond, partial(self._infer_here, request, model, version, respond))
        return self._infer_here(request, model, version, respond)

    def _hand_on(
        self, request: HttpRequest, model: str, respond: Respond, otherwise: Otherwise | None = None
    ) -> Handed | None:
        if self._handing is None:
            return None
        handed = Handed()
        self._start_task(self._handing.answer_to(handed, request, model, respond, otherwise), "hand on")
        return handed

    def _infer_here(self, request: HttpRequest, model: str, version: str, respond: Respond) -> Cancellable | None:
        limit = time_left(request)
        found = recognise(request, self._max_json_bytes)
        if found is not None:
            taken, call = infer_by_template(self._plane, request, found, model, version, respond, limit)
            if taken:
                return call
        if self._handing is not None and self._handing.is_due(request, model):
            return self._hand_on(request, model, respond)
        self._plane.check_room(model)
        if not request.body:
            _refuse_without_body(request)
        decoded, wanted = decode_request(request, found, model, version, self._max_json_bytes)
        if limit is not None:
            decoded.timeout = limit if decoded.timeout is None else min(limit, decoded.timeout)

        def answered(result: InferResult | TiercelError) -> None:
            try:
                response = error_response(result) if isinstance(result, TiercelError) else encode_result(result, wanted)
            except Exception as error:
                response = answer_to_defect("Encoding an answer", error)
            respond(response)

        return self._plane.submit(decoded, answered)

    def sees(self, request: HttpRequest, model: str) -> bool:
        """Whether a list may name a model to who asks for it."""
        return self._gate.sees(request.caller, model, request.authorization)

    def check_overview(self, request: HttpRequest) -> None:
        """See :meth:`.Gate.check_overview`."""
        self._gate.check_overview(request.caller, request.authorization)

    def _usage(self, request: HttpRequest, _: Parameters) -> HttpResponse:
        """Requests, delays, CPU and accelerator time of each model; `?since=SECONDS` for the delays since then."""
        self.check_overview(request)
        since = since_of(request.target)
        usage, at = self._plane.usage(since), self._plane.clock_at(since)
        number = self._handing.table_number if self._handing is not None else 0
        more = {name: tell(at) for name, tell in self._in_usage.items()}
        return json_response(usage | {"keys": self._gate.uses(), "routes_number": number} | more)

    def _server_metadata(self, *_: object) -> HttpResponse:
        """Name, version and extensions of the server."""
        return json_response(self._plane.server_metadata())

    def _live(self, *_: object) -> HttpResponse:
        """Whether the server answers at all."""
        return json_response({"live": True})

    def _metadata(self, request: HttpRequest, parameters: Parameters) -> Answer:
        """Names, types and shapes of what a model takes and gives."""
        if self._handing is not None and self._handing.is_due(request, parameters["model"]):
            return self._handing.answer(request, parameters["model"])
        return json_response(self._plane.model_metadata(parameters["model"], parameters.get("version", "")))

    def _ready(self, *_: object) -> HttpResponse:
        """Whether the server is ready: 200, else 400."""
        ready = self._plane.is_ready()
        return json_response({"ready": ready}, 200 if ready else 400)

    def _model_ready(self, request: HttpRequest, parameters: Parameters) -> Answer:
        """Whether a model is ready: 200, else 400."""
        if self._handing is not None and self._handing.is_due(request, parameters["model"]):
            return self._handing.answer(request, parameters["model"])
        ready = self._plane.is_model_ready(parameters["model"], parameters.get("version", ""))
        return json_response({"name": parameters["model"], "ready": ready}, 200 if ready else 400)

    async def _index(self, request: HttpRequest, _: Parameters) -> HttpResponse:
        """All versions of all models with their states and reasons; `{"ready": true}` for those that answer."""
        only_ready = body_object(request).get("ready", False)
        if type(only_ready) is not bool:
            raise InvalidRequestError("ready must be true or false")
        lines = await self._lifecycle.index(only_ready)
        return json_response([line for line in lines if self.sees(request, line["name"])])

    async def _load(self, request: HttpRequest, parameters: Parameters) -> HttpResponse:
        """Loads the newest version of a model, or the one that `parameters` name or bring; answers once it is live."""
        large = len(request.body) > MOST_AT_ONCE
        content = await asyncio.to_thread(body_object, request) if large else body_object(request)
        given = content.get("parameters") or {}
        if not isinstance(given, dict):
            raise InvalidRequestError("parameters must be a JSON object")
        await self._gate.look()  # what is loaded now answers by the rules of now
        version = await self._uploads.load(parameters["model"], given)
        answer = {"name": parameters["model"], "version": str(version), "state": "READY"}
        # So that whoever has put a file there knows that it is the one that answers.
        sha256 = self._lifecycle.sha256_of(parameters["model"], version)
        return json_response(answer | {"sha256": sha256} if sha256 else answer)

    def _canary(self, _: HttpRequest, parameters: Parameters) -> HttpResponse:
        """How the trial of a model's newer version goes, or the last one went."""
        return json_response(self._lifecycle.trial(parameters["model"]))

    async def _unload(self, _: HttpRequest, parameters: Parameters) -> HttpResponse:
        """Lets a model answer no more."""
        await self._lifecycle.unload(parameters["model"])
        return json_response({"name": parameters["model"], "state": "UNAVAILABLE"})

    def _shares(self, request: HttpRequest, _: Parameters) -> HttpResponse:
        """Takes what each model may use, as the node's agent says it."""
        shares = read_shares(body_object(request))
        self._plane.declare_shares(shares)
        return json_response({"models": len(shares)})


def from_programs_only(endpoint: Endpoint) -> Endpoint:
    """``endpoint``, but not for web pages: one that somebody on this machine looks at could reach a server there."""

    @wraps(endpoint)
    def guarded(request: HttpRequest, parameters: Parameters) -> Answer:
        if b"origin" in request.headers:
            raise NotAllowedError("web pages may not load or unload models; a program sends no Origin header")
        return endpoint(request, parameters)

    return guarded


def body_object(request: HttpRequest) -> dict[str, Any]:
    """The body as a JSON object; an empty body is an empty object.

    Raises:
        InvalidRequestError: It is something else.
    """
    if not request.body:
        return {}
    try:
        content = orjson.loads(request.body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"the body is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise InvalidRequestError("the body must be a JSON object")
    return content


async def _unpack(inflater: Inflater, request: HttpRequest, respond: Respond, handle: Handler) -> None:
    try:
        await inflater.inflate(request)
    except TiercelError as error:
        respond(error_response(error))
    except Exception as error:
        respond(answer_to_defect("Unpacking a body", error))
    else:
        handle(request, respond)


async def _answer_later(
    answer: Coroutine[Any, Any, HttpResponse], what: str, respond: Respond, work: Handed | None
) -> None:
    if work is not None and not work.begin():
        answer.close()
        return
    try:
        response = await answer
    except TiercelError as error:
        response = error_response(error)
    except Exception as error:
        response = answer_to_defect(what, error)
    respond(response)


def _is_packed(request: HttpRequest) -> bool:
    return request.headers[b"content-encoding"].lower() not in {b"", b"identity"}


def _refuse_without_body(request: HttpRequest) -> None:
    if request.head.length is None and b"transfer-encoding" not in request.headers:
        raise HttpRefusedError(
            HTTPStatus.LENGTH_REQUIRED, "the request has no body; send one, with its Content-Length or chunked"
        )
