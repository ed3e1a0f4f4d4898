"""Generation over REST, as Triton and KServe extend the protocol: ``/generate``, and ``/generate_stream`` by events."""

from __future__ import annotations

from typing import Any, Final

import orjson

from tiercel.core.errors import TiercelError
from tiercel.core.traces import Tracing
from tiercel.serving.generation.generation import Generation
from tiercel.serving.generation.request import GenerationRequest, check_size, read_request
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.rest.handing import RestHanding, time_left
from tiercel.serving.rest.messages import (
    HttpRequest,
    HttpResponse,
    HttpStream,
    Respond,
    error_response,
    json_response,
)
from tiercel.serving.rest.routes import Parameters, Routes, body_object
from tiercel.serving.rest.traced import traced
from tiercel.serving.routing.calls import Cancellable, Handed
from tiercel.serving.routing.relay import HOPS
from tiercel.serving.runtime.decoder import Decoder
from tiercel.serving.tasks import StartTask

_EVENTS: Final = b"text/event-stream"


def add_generation(
    routes: Routes, generation: Generation, handing: RestHanding, start_task: StartTask, tracing: Tracing | None = None
) -> None:
    """Have models that are decoders generate."""

    def generate(request: HttpRequest, of: Parameters, respond: Respond) -> Cancellable | None:
        """Generates an answer token by token, of a decoder with a key-value cache; sent when it is complete."""
        return begin(request, of, respond, is_stream=False)

    def generate_stream(request: HttpRequest, of: Parameters, respond: Respond) -> Cancellable | None:
        """Generates an answer and sends each token as a server-sent event; the last one has `finish_reason`."""
        return begin(request, of, respond, is_stream=True)

    def begin(request: HttpRequest, of: Parameters, respond: Respond, *, is_stream: bool) -> Cancellable | None:
        model, version = of["model"], of.get("version", "")
        if handing.is_due(request, model):
            handed = Handed()
            start_task(handing.answer_to(handed, request, model, respond), "hand on")
            return handed
        found = generation.version_for(model, version)
        check_size(len(request.body))
        wanted = read_request(body_object(request), model, version, generation.limits, time_left(request))
        # Another node takes answers as a whole, and gives them to its caller so.
        in_parts = is_stream and HOPS not in request.headers
        answer = (_Events if is_stream else _Whole)(wanted, found, respond, in_parts=in_parts)
        return generation.submit(wanted, found, request.arrived, answer)

    for version in ("", "/versions/{version}"):
        for name, answer in (("generate", generate), ("generate_stream", generate_stream)):
            spanned = answer if tracing is None else traced(name, answer, tracing, lambda: handing.node_id)
            routes.add_cancellable("POST", f"/v2/models/{{model}}{version}/{name}", spanned)


class _Answer:
    """What all answers say, and their text where the version has one."""

    def __init__(
        self,
        request: GenerationRequest,
        found: tuple[LoadedVersion, Decoder],
        respond: Respond,
        *,
        in_parts: bool,
    ) -> None:
        loaded, decoder = found
        self._respond = respond
        self._in_parts = in_parts
        self._head: dict[str, Any] = {"model_name": loaded.model, "model_version": loaded.version_text}
        if request.id:
            self._head = {"id": request.id, **self._head}
        self._text = decoder.tokenizer.answer() if decoder.tokenizer else None

    def _said(self, tokens: list[int], reason: str = "") -> dict[str, Any]:
        said = {**self._head, "output_ids": tokens}
        if self._text is not None:
            said["text_output"] = self._text.of(tokens, is_end=bool(reason))
        return said | {"finish_reason": reason} if reason else said


class _Whole(_Answer):
    """An answer that is sent when it is complete; see :class:`.Listener`."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._tokens: list[int] = []

    def token(self, token: int) -> None:
        self._tokens.append(token)

    def finished(self, reason: str) -> None:
        self._respond(json_response(self._said(self._tokens, reason)))

    def failed(self, error: TiercelError) -> None:
        self._respond(error_response(error))


class _Events(_Answer):
    """An answer that is sent token by token, once there is one: what fails later is the last event, with ``error``."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._stream: HttpStream | None = None
        self._kept: list[bytes] = []

    def token(self, token: int) -> None:
        self._send(self._said([token]))

    def finished(self, reason: str) -> None:
        self._send(self._said([], reason))
        self._end()

    def failed(self, error: TiercelError) -> None:
        if self._stream is None and not self._kept:
            self._respond(error_response(error))
            return
        self._send(self._head | {"error": error.message})
        self._end(error.message)

    def _send(self, said: dict[str, Any]) -> None:
        event = b"data: %b\n\n" % orjson.dumps(said)
        if not self._in_parts:
            self._kept.append(event)
            return
        if self._stream is None:
            self._stream = HttpStream(_EVENTS)
            self._respond(self._stream)
        self._stream.send(event)

    def _end(self, error: str = "") -> None:
        if self._stream is not None:
            self._stream.end(error)
        else:
            self._respond(HttpResponse(200, b"".join(self._kept), _EVENTS))
