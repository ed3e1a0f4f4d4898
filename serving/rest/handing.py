"""Requests over REST for models that other nodes have: they go there as they are, and so do the answers come back."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from tiercel.core.errors import TiercelError
from tiercel.serving.access.callers import Caller, handed_on_by, handed_on_for
from tiercel.serving.dataplane import DataPlane
from tiercel.serving.rest.messages import (
    HttpRefusedError,
    HttpRequest,
    HttpResponse,
    Respond,
    answer_to_defect,
    error_response,
)
from tiercel.serving.routing.calls import Cancellable, Handed
from tiercel.serving.routing.connection import Answer
from tiercel.serving.routing.relay import ASKED_BY, HOPS, NOT_HERE, TIME_LEFT, TOKEN, Handing, Relay

_HANDED_ON: Final = (
    *(b"content-type", b"inference-header-content-length", b"authorization", b"accept"),
    *(b"traceparent", b"tracestate"),
)
_HANDED_BACK: Final = (b"inference-header-content-length", b"retry-after", b"www-authenticate")
# In which other nodes say whether they know a request.
_KNOW_SECONDS: Final = 3.0
Otherwise = Callable[[], Cancellable | None]


class RestHanding:
    """Hands requests on.

    Args:
        timeout: Seconds in which a request is answered at the latest.
    """

    def __init__(self, relay: Relay, plane: DataPlane, timeout: float) -> None:
        self._relay = relay
        self._plane = plane
        self._timeout = timeout

    @property
    def table_number(self) -> int:
        """Number of the table by which requests are handed on."""
        return self._relay.table_number

    @property
    def node_id(self) -> str:
        """Of this node; empty for unknown."""
        return self._relay.node_id

    def is_due(self, request: HttpRequest, model: str) -> bool:
        """Whether a request is for another node: the model is not here, and it is known who has it.

        Raises:
            HttpRefusedError: The model is not here, and the request was handed on already.
        """
        if self._plane.has(model):
            return False
        if HOPS in request.headers:
            raise not_here(f"'{model[:200]}'")
        return self._relay.answers(model)

    def caller_of(self, request: HttpRequest) -> tuple[Caller, bool]:
        """Who asks, of a request that says that it was handed on, and whether another node says so.

        Only another node is believed in that: by its certificate, or on the same machine by what servers there know.
        """
        caller = request.caller
        token, shown = self._relay.token.encode(), request.headers.get(TOKEN, b"")
        if self._relay.believes(caller.node) or (caller.is_local and token and hmac.compare_digest(token, shown)):
            return handed_on_by(request.headers.get(ASKED_BY, b"").decode("latin-1")), True
        return caller, False

    async def answer(self, request: HttpRequest, model: str, *, is_here: bool = False) -> HttpResponse:
        """Have another node answer; the model may be here as well.

        Raises:
            TiercelError: None does.
        """
        deadline = asyncio.get_running_loop().time() + self._timeout
        answer = await self._relay.ask(_handing(request, model), deadline, is_here=is_here)
        return _response(answer)

    async def first_to_know(self, request: HttpRequest, model: str) -> HttpResponse | None:
        """What one of the other nodes that have a model answers, of those that know what is asked for; None for none.

        It is asked of all of them, since only the one that did it knows; not where it was asked by one of them.
        """
        if HOPS in request.headers:
            return None
        answers = await self.answers_of_each(request, model)
        return next((each for each in answers if each.status == HTTPStatus.OK), None)

    async def answers_of_each(self, request: HttpRequest, model: str) -> list[HttpResponse]:
        """What the other nodes answer that have a model, as far as they do within seconds."""
        answers = await self._relay.ask_each(model, _handing(request, ""), _KNOW_SECONDS)
        return [_response(each) for each in answers]

    def is_sooner(self, request: HttpRequest, model: str) -> bool:
        """Whether another node is expected to answer before a request of a model that is here has its turn."""
        return HOPS not in request.headers and self._relay.is_sooner(model, self._plane.wait(model))

    async def answer_to(
        self, handed: Handed, request: HttpRequest, model: str, respond: Respond, otherwise: Otherwise | None = None
    ) -> None:
        """The same for one that its caller may give up.

        Args:
            handed: Its caller's.
            request: The request.
            model: What it is for.
            respond: Takes the answer.
            otherwise: Answers it here where nobody else does; None where it cannot be answered here.
        """
        if not handed.begin():
            return
        try:
            response = await self.answer(request, model, is_here=otherwise is not None)
        except TiercelError as error:
            response = error_response(error)
        except Exception as error:  # the border
            response = answer_to_defect("Handing a request on", error)
        if response.status != HTTPStatus.SERVICE_UNAVAILABLE or otherwise is None:
            respond(response)
            return
        try:
            handed.go_on_with(otherwise())
        except TiercelError as error:
            respond(error_response(error))
        except Exception as error:  # the border
            respond(answer_to_defect("A request", error))


def not_here(what: str) -> HttpRefusedError:
    """The refusal of what was handed on already."""
    return HttpRefusedError(
        HTTPStatus.NOT_FOUND,
        f"{what} is not on this node, and the request was handed on to it already; ask again",
        NOT_HERE + b": 1\r\n",
    )


def time_left(request: HttpRequest) -> float | None:
    """Seconds in which the answer to a request that was handed on is of use; None for one that was not."""
    if HOPS not in request.headers:
        return None
    said = request.headers.get(TIME_LEFT, b"")
    return int(said) / 1e6 if said.isdigit() and len(said) < 16 else None


def _handing(request: HttpRequest, model: str) -> Handing:
    """A request as it is handed on."""
    head = request.head
    method = b"GET" if head.method == b"HEAD" else head.method
    headers = _lines(head.headers, _HANDED_ON)
    if asked_by := handed_on_for(request.caller):
        headers += b"%b: %b\r\n" % (ASKED_BY, asked_by.encode("latin-1"))
    return Handing(model, method, _origin_form(head.target), headers, request.body)


def _response(answer: Answer) -> HttpResponse:
    """What another node answered, as it is handed back."""
    content_type = answer.headers.get(b"content-type", b"application/json")
    return HttpResponse(answer.status, bytes(answer.body), content_type, _lines(answer.headers, _HANDED_BACK))


def _lines(headers: Mapping[bytes, bytes], names: tuple[bytes, ...]) -> bytes:
    return b"".join(b"%b: %b\r\n" % (name, headers[name]) for name in names if name in headers)


def _origin_form(target: bytes) -> bytes:
    """The path and query of a target, which proxies may be sent with the whole address before them."""
    if target.startswith(b"/"):
        return target
    parts = urlsplit(target.decode("ascii"))
    return f"{parts.path}?{parts.query}".encode() if parts.query else parts.path.encode()
