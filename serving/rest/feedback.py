"""Feedback on requests over REST: ``POST /v2/models/M/feedback``, at whichever node answered them."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import orjson

from tiercel.core.errors import InvalidRequestError, NotFoundError, TooLargeError
from tiercel.serving.explaining.feedback import Feedback
from tiercel.serving.rest.handing import RestHanding
from tiercel.serving.rest.messages import HttpRequest, HttpResponse, json_response
from tiercel.serving.rest.routes import Parameters, Routes, body_object
from tiercel.serving.routing.relay import HOPS

MOST_ITEMS: Final = 1000
_MOST_BYTES: Final = 1024**2


@dataclass(slots=True)
class _Told:
    """What became of feedback; ``unknown`` are the items whose requests nobody knows."""

    taken: int = 0
    refused: list[dict[str, str]] = field(default_factory=list)
    unknown: list[dict[str, Any]] = field(default_factory=list)

    def answer(self) -> HttpResponse:
        ids = [each["id"] for each in self.unknown]
        return json_response({"taken": self.taken, "refused": self.refused, "unknown": ids})


def add_feedback(routes: Routes, feedback: Feedback, handing: RestHanding) -> None:
    """Have feedback taken, and told what it says of each version."""

    def take(request: HttpRequest, of: Parameters) -> HttpResponse | Coroutine[None, None, HttpResponse]:
        """Takes what was right in answers, by the ids of their requests."""
        model = of["model"]
        told = _told_here(feedback, model, _items(request))
        if told.unknown and HOPS not in request.headers:
            return elsewhere(request, model, told)
        return told.answer()

    async def elsewhere(request: HttpRequest, model: str, told: _Told) -> HttpResponse:
        body = orjson.dumps({"feedback": told.unknown})
        asked = HttpRequest(request.head, body, caller=request.caller)
        for answer in await handing.answers_of_each(asked, model):
            if answer.status == HTTPStatus.OK:
                said = orjson.loads(answer.body)
                told.taken += said["taken"]
                told.refused += said["refused"]
                unknown = set(said["unknown"])
                told.unknown = [each for each in told.unknown if each["id"] in unknown]
        if told.unknown and not told.taken and not told.refused:
            raise NotFoundError(
                f"no node that was asked knows a request with the id '{told.unknown[0]['id'][:128]}' to "
                f"'{model[:200]}' (any more); feedback is taken on the last few thousand that had an id of their own"
            )
        return told.answer()

    def tell(_: HttpRequest, of: Parameters) -> HttpResponse:
        """How good the versions of a model are by the feedback that came."""
        return json_response({"model": of["model"], "versions": feedback.of(of["model"])})

    routes.add("POST", "/v2/models/{model}/feedback", take, for_all=True)
    routes.add("GET", "/v2/models/{model}/feedback", tell)


def _told_here(feedback: Feedback, model: str, items: list[dict[str, Any]]) -> _Told:
    told = _Told()
    for item in items:
        try:
            feedback.take(model, item["id"], item["label"])
            told.taken += 1
        except NotFoundError:
            told.unknown.append(item)
        except InvalidRequestError as error:
            told.refused.append({"id": item["id"], "error": error.message})
    return told


def _items(request: HttpRequest) -> list[dict[str, Any]]:
    """What the body says, each with an id and a label."""
    if len(request.body) > _MOST_BYTES:
        raise TooLargeError(f"feedback has {len(request.body)} bytes, {_MOST_BYTES} are possible; send less at once")
    items = body_object(request).get("feedback")
    if not isinstance(items, list) or not 0 < len(items) <= MOST_ITEMS:
        raise InvalidRequestError(
            f'feedback must be a list of 1 to {MOST_ITEMS} items such as {{"id": "7f3a", "label": 3}}'
        )
    for item in items:
        if not isinstance(item, dict) or not isinstance(item.get("id"), str) or "label" not in item:
            raise InvalidRequestError('feedback: each item must be an object with "id", a text, and "label"')
    return items
