"""Answers packed with gzip or deflate for callers who ask for it, where that is worth their waiting."""

from __future__ import annotations

import asyncio
import zlib
from functools import lru_cache
from typing import Final

from tiercel.serving.rest.messages import HttpResponse, HttpStream, Respond
from tiercel.serving.routing.calls import Cancellable
from tiercel.serving.tasks import StartTask

# Handing an answer to another thread and back takes longer than sending fewer bytes than this.
_LEAST_BYTES: Final = 8 * 1024
# The fastest there is: a model's numbers hardly get smaller by more.
_LEVEL: Final = 1
_WINDOW_BITS: Final = {b"gzip": 16 + zlib.MAX_WBITS, b"deflate": zlib.MAX_WBITS}


class PackedAnswer:
    """Packs an answer, off the event loop, before it is sent."""

    __slots__ = ("_coding", "_is_unwanted", "_respond", "_start_task", "_work")

    def __init__(self, respond: Respond, coding: bytes, start_task: StartTask) -> None:
        self._respond = respond
        self._coding = coding
        self._start_task = start_task
        self._is_unwanted = False
        self._work: Cancellable | None = None

    def respond(self, response: HttpResponse | HttpStream | bytes) -> None:
        """Send it, packed if it is large, which what comes as bytes never is, and what comes in parts at no time."""
        if not isinstance(response, HttpResponse) or len(response.body) < _LEAST_BYTES:
            self._respond(response)
        else:
            self._start_task(self._pack(response), "pack")

    def instead_of(self, work: Cancellable) -> Cancellable:
        """What to cancel when the caller goes away: the work that leads to the answer, and the packing of it."""
        self._work = work
        return self

    def cancel(self) -> None:
        """The caller went away."""
        self._is_unwanted = True
        if self._work is not None:
            self._work.cancel()

    async def _pack(self, response: HttpResponse) -> None:
        body = await asyncio.to_thread(packed, response.body, self._coding)
        if self._is_unwanted:
            return
        if len(body) < len(response.body):
            # Lengths within the body, such as that of the JSON before binary tensors, are those of what is packed.
            response.body = body
            response.headers += b"Content-Encoding: %b\r\nVary: Accept-Encoding\r\n" % self._coding
        self._respond(response)


def packed(body: bytes, coding: bytes) -> bytes:
    """``body`` in gzip's form or, for deflate, zlib's (RFC 9110, 8.4.1); blocks, without Python's lock."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW_BITS[coding])
    return packer.compress(body) + packer.flush()


@lru_cache(maxsize=256)
def coding_for(accepted: bytes) -> bytes | None:
    """How to pack an answer by ``Accept-Encoding`` (RFC 9110, 12.5.3): ``gzip``, ``deflate``, or None for not at all.

    Only what is named counts: who says ``*`` or nothing gets the answer as it is.
    """
    weights: dict[bytes, float] = {}
    for item in accepted.lower().split(b","):
        name, _, parameters = item.partition(b";")
        weights[name.strip()] = _weight(parameters)
    best = max(_WINDOW_BITS, key=lambda coding: weights.get(coding, 0.0))
    weight = weights.get(best, 0.0)
    return best if weight > 0 and weight >= weights.get(b"identity", 0.0) else None


def _weight(parameters: bytes) -> float:
    """The value of ``q``; 1 where there is none, 0 for what is not a number."""
    name, _, value = parameters.partition(b"=")
    if name.strip() != b"q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0
