"""Feedback in bulk, beside whoever else asks the server."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import orjson

from tiercel.serving.dataplane import DataPlane
from tiercel.serving.explaining.feedback import Feedback
from tiercel.serving.explaining.recent_requests import RecentRequests
from tiercel.serving.models.registry import Registry
from tiercel.serving.rest.feedback import FeedbackDoor
from tiercel.serving.rest.feedback_items import MOST_ITEMS
from tiercel.serving.rest.head import Head
from tiercel.serving.rest.messages import HttpRequest
from tiercel.serving.routing.relay import HOPS

NOBODY = cast("Any", None)


async def test_others_have_their_turns_while_much_is_said_at_once() -> None:
    plane = DataPlane(Registry(), NOBODY, 30.0)
    door = FeedbackDoor(Feedback(RecentRequests(10)), NOBODY, plane, NOBODY, 10**7, 30.0)
    body = orjson.dumps({"feedback": [{"id": str(number), "label": 1} for number in range(MOST_ITEMS)]})
    handed_on = HttpRequest(Head(b"POST", b"/", {HOPS: b"1"}), body)
    taking = asyncio.ensure_future(door.take(handed_on, {"model": "m"}))
    await asyncio.to_thread(lambda: None)  # until it is read, or about so
    turns = 0
    while not taking.done():
        await asyncio.sleep(0)
        turns += 1
    assert len(orjson.loads((await taking).body)["unknown"]) == MOST_ITEMS
    assert turns >= 20
