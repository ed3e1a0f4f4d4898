"""Feedback over REST: ``POST /v2/models/M/feedback``, on requests at whichever node answered them, and on inputs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import orjson

from tiercel.core.errors import (
    DeadlineExceededError,
    InferenceFailedError,
    InvalidRequestError,
    NotFoundError,
    TiercelError,
    TooLargeError,
)
from tiercel.serving.explaining.feedback import WINDOW_ROWS, Feedback, answered
from tiercel.serving.requests import InferRequest, InferResult
from tiercel.serving.rest.feedback_items import Item, at_field, read_items
from tiercel.serving.rest.handing import RestHanding, time_left
from tiercel.serving.rest.messages import HttpRefusedError, HttpRequest, HttpResponse, json_response
from tiercel.serving.rest.routes import Parameters, Routes
from tiercel.serving.routing.relay import HOPS

if TYPE_CHECKING:
    from tiercel.serving.access.gate import Gate
    from tiercel.serving.dataplane import DataPlane
    from tiercel.serving.explaining.recent_requests import Answered

# Bodies of more bytes than this are read in another thread: it is 0.5 ms of small tensors.
_MOST_AT_ONCE: Final = 2 * 1024
# After so many others have their turn.
_IDS_AT_ONCE: Final = 50
# What is wrong with these inputs and may be right with the next ones.
_OF_ITS_OWN: Final = (InvalidRequestError, TooLargeError, InferenceFailedError)


@dataclass(slots=True)
class _Told:
    """What became of feedback; ``unknown`` are the items whose requests nobody knows."""

    taken: int = 0
    refused: list[dict[str, Any]] = field(default_factory=list)
    unknown: list[Item] = field(default_factory=list)

    def answer(self) -> HttpResponse:
        ids = [each.id for each in self.unknown]
        return json_response({"taken": self.taken, "refused": self.refused, "unknown": ids})


@dataclass(slots=True, eq=False)
class FeedbackDoor:
    """Takes feedback, and tells what it says of each version."""

    feedback: Feedback  # counts it
    handing: RestHanding  # knows the other nodes
    plane: DataPlane  # answers inputs
    gate: Gate  # lets inputs in, beyond the first of a request
    max_json_bytes: int  # largest JSON
    timeout: float  # seconds in which all inputs of a request are answered at the latest
    # What is read takes many times its bytes for a moment.
    _reading: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    def add_to(self, routes: Routes) -> None:
        """Have it asked."""
        routes.add("POST", "/v2/models/{model}/feedback", self.take, for_all=True)
        routes.add("GET", "/v2/models/{model}/feedback", self.tell)

    def tell(self, _: HttpRequest, of: Parameters) -> HttpResponse:
        """How good the versions of a model are by the feedback that came."""
        return json_response({"model": of["model"], "versions": self.feedback.of(of["model"])})

    async def take(self, request: HttpRequest, of: Parameters) -> HttpResponse:
        """Takes what was right: in answers, by the ids of their requests, or for inputs, which are answered for it."""
        model, told = of["model"], _Told()
        items = await self._read(request, model)
        by_id = [item for item in items if item.inputs is None]
        for first in range(0, len(by_id), _IDS_AT_ONCE):
            self._take_here(model, by_id[first : first + _IDS_AT_ONCE], told)
            await asyncio.sleep(0)
        if told.unknown and HOPS not in request.headers:
            await self._take_elsewhere(request, model, told)
        why = await self._compare(request, model, [item for item in items if item.inputs is not None], told)
        if told.taken or told.refused:
            return told.answer()
        if why is not None:
            raise why
        if told.unknown and HOPS not in request.headers:
            raise NotFoundError(
                f"no node that was asked knows a request with the id '{told.unknown[0].id[:128]}' to "
                f"'{model[:200]}' (any more); feedback is taken on the last few thousand that had an id of their own"
            )
        return told.answer()

    async def _read(self, request: HttpRequest, model: str) -> list[Item]:
        keep_bodies = not self.plane.has(model)
        if len(request.body) <= _MOST_AT_ONCE:
            return read_items(request, self.max_json_bytes, keep_bodies=keep_bodies)
        async with self._reading:
            return await asyncio.to_thread(read_items, request, self.max_json_bytes, keep_bodies=keep_bodies)

    def _take_here(self, model: str, items: list[Item], told: _Told) -> None:
        """Count what is known here."""
        for item in items:
            try:
                self.feedback.take(model, item.id, item.label)
                told.taken += 1
            except NotFoundError:
                told.unknown.append(item)
            except InvalidRequestError as error:
                told.refused.append(item.refused(error.message))

    async def _take_elsewhere(self, request: HttpRequest, model: str, told: _Told) -> None:
        """Have the other nodes count what is known there."""
        body = orjson.dumps({"feedback": [{"id": each.id, "label": each.label} for each in told.unknown]})
        asked = HttpRequest(request.head, body, caller=request.caller)
        for answer in await self.handing.answers_of_each(asked, model):
            if answer.status == HTTPStatus.OK:
                said = orjson.loads(answer.body)
                told.taken += said["taken"]
                told.refused += said["refused"]
                unknown = set(said["unknown"])
                told.unknown = [each for each in told.unknown if each.id in unknown]

    async def _compare(self, request: HttpRequest, model: str, items: list[Item], told: _Told) -> TiercelError | None:
        """Have inputs answered, and count them; gives why the rest was not, which is refused, or None for no rest."""
        limit = min(self.timeout, time_left(request) or self.timeout)
        done = 0
        why: TiercelError
        try:
            async with asyncio.timeout(limit):
                for item in items:  # one after the other, so that nobody else waits for more than one of them
                    if done:  # the first one was let in; the others are as much work
                        self.gate.check(request.caller, model, request.authorization)
                    await self._compare_one(request, model, item, told)
                    await asyncio.sleep(0)  # a run that is done at once lets nobody else have a turn
                    done += 1
        except TimeoutError:
            why = DeadlineExceededError(f"'{model[:200]}' did not answer all inputs within {limit:.6g} seconds")
        except TiercelError as error:
            why = error
        else:
            return None
        if told.taken or told.refused:
            told.refused += [item.refused(why.message) for item in items[done:]]
        return why

    async def _compare_one(self, request: HttpRequest, model: str, item: Item, told: _Told) -> None:
        if item.body and self.handing.is_due(request, model):
            await self._hand_on(request, model, item, told)
            return
        inputs = item.inputs or ()
        try:
            result = await self.plane.infer(InferRequest(model, "", list(inputs)))
        except _OF_ITS_OWN as error:
            told.refused.append(item.refused(at_field(item.place, inputs, error.message)))
            return
        variant = str((result.parameters or {}).get("variant", ""))
        try:
            self.feedback.count(model, variant, result.version, _answer_of(result, item.rows), item.label)
        except InvalidRequestError as error:
            told.refused.append(item.refused(f"feedback[{item.place}].{error.message}"))
        else:
            told.taken += 1

    async def _hand_on(self, request: HttpRequest, model: str, item: Item, told: _Told) -> None:
        """Have a node answer that has the model, and count it there."""
        answer = await self.handing.answer(HttpRequest(request.head, item.body, caller=request.caller), model)
        said = orjson.loads(answer.body)
        if answer.status != HTTPStatus.OK:
            raise HttpRefusedError(HTTPStatus(answer.status), said["error"], answer.headers)
        told.taken += said["taken"]
        for each in said["refused"]:
            told.refused.append(item.refused(each["error"].replace("feedback[0]", f"feedback[{item.place}]", 1)))


def _answer_of(result: InferResult, rows: int) -> Answered:
    answer = None
    if result.outputs:
        output = result.outputs[0].array
        if output.ndim in {1, 2} and len(output) != rows:
            raise InvalidRequestError(f"label must have an entry for each of its {len(output)} rows")
        answer = answered(output, WINDOW_ROWS)
    if answer is None:
        raise InvalidRequestError(
            "label cannot be compared: the model's first output is not of shape [rows], [rows, 1] or [rows, classes]"
        )
    return answer
